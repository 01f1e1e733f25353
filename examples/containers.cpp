// Containers on hakmem by name: for programs that keep another malloc for the rest.
#include <cstdio>
#include <string>
#include <vector>

#include <hakmem/hakmem.hpp>

int main()
{
    std::vector<int, hakmem::allocator<int>> numbers;
    for (int i = 0; i < 100000; i++)
        numbers.push_back(i);

    std::pmr::vector<std::pmr::string> names(hakmem::resource());
    for (int i = 0; i < 1000; i++)
        names.emplace_back("a name too long to be kept inline");

    // A labelled call-site, as in C.
    void *buffer = hak_alloc_cs(64 << 10, HAK_CALLSITE());

    hak_stats_data stats;
    if (hak_stats(&stats, sizeof stats) != 0)
        return 1;
    std::printf("hakmem %s has served %llu KiB\n", hak_version(),
                static_cast<unsigned long long>(stats.served_bytes >> 10));
    hak_free_cs(buffer, HAK_CALLSITE());
    return 0;
}
