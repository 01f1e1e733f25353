/* hakmem.hpp: the allocator in containers, and the memory resource. */
#include <hakmem/hakmem.hpp>

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "../test.h"

namespace {

template <typename T>
using allocator = hakmem::allocator<T>;
using traits = std::allocator_traits<allocator<int>>;

static_assert(traits::is_always_equal::value, "all are equal");
static_assert(traits::propagate_on_container_move_assignment::value, "moves by pointer");
static_assert(traits::propagate_on_container_copy_assignment::value, "");
static_assert(traits::propagate_on_container_swap::value, "");
static_assert(std::is_same<traits::rebind_alloc<char>, allocator<char>>::value, "rebinds");
static_assert(std::is_empty<allocator<int>>::value, "costs a container nothing");
static_assert(noexcept(allocator<int>(allocator<char>())), "converts");

void check_containers()
{
    std::vector<int, allocator<int>> vector;
    for (int i = 0; i < 100000; i++) {
        vector.push_back(i);
    }
    CHECK(hak_usable_size(vector.data()) >= vector.size() * sizeof(int));
    std::vector<int, allocator<int>> moved = std::move(vector);
    CHECK_EQ(moved.size(), 100000);
    CHECK_EQ(moved[77777], 77777);

    using string = std::basic_string<char, std::char_traits<char>, allocator<char>>;
    std::map<int, string, std::less<int>, allocator<std::pair<const int, string>>> map;
    std::unordered_map<int, string, std::hash<int>, std::equal_to<int>,
                       allocator<std::pair<const int, string>>>
        table;
    for (int i = 0; i < 3000; i++) {
        string text(static_cast<size_t>(i % 200), 'x');
        map[i] = text;
        table[i] = text;
    }
    for (int i = 0; i < 3000; i += 2) {
        map.erase(i);
        table.erase(i);
    }
    CHECK_EQ(map.size(), 1500);
    CHECK_EQ(table[199].size(), 199);

    std::list<int, allocator<int>> list(1000, 7), other(1000, 8);
    list.splice(list.end(), other);
    CHECK_EQ(list.size(), 2000);
    std::deque<double, allocator<double>> deque(5000, 1.5);
    deque.push_front(2.5);
    CHECK_EQ(deque.size(), 5001);

    auto shared = std::allocate_shared<string>(allocator<string>(), 1000u, 'y');
    CHECK_EQ(shared->size(), 1000);
}

struct alignas(1024) wide {
    char bytes[1024];
};

void check_alignment()
{
    allocator<wide> wides;
    for (size_t count = 0; count < 100; count++) {
        wide *block = wides.allocate(count);
        CHECK(block != nullptr);
        CHECK_ALIGNED(block, 1024);
        memset(static_cast<void *>(block), 1, count * sizeof(wide));
        wides.deallocate(block, count);
    }
    std::vector<wide, allocator<wide>> vector(10);
    CHECK_ALIGNED(vector.data(), 1024);
}

template <typename T>
void check_limits()
{
    allocator<T> blocks;
    for (size_t count : {SIZE_MAX, SIZE_MAX / sizeof(T), TEST_SIZE_LIMIT / sizeof(T) + 1}) {
        bool thrown = false;
        try {
            T *volatile block = blocks.allocate(count);
            blocks.deallocate(block, count);
        } catch (const std::bad_array_new_length &) {
            thrown = true;
        }
        CHECK(thrown);
    }
    /* Possible for C, impossible here. */
    bool thrown = false;
    try {
        T *volatile block = blocks.allocate(TEST_SIZE_LIMIT / sizeof(T));
        blocks.deallocate(block, 1);
    } catch (const std::bad_array_new_length &) {
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
}

void check_equality()
{
    CHECK(allocator<int>() == allocator<int>());
    CHECK(allocator<int>() == allocator<char>());
    CHECK(!(allocator<int>() != allocator<char>()));
}

#if defined(__cpp_lib_memory_resource)

/* Uses the resource in its destructor, after main. */
struct late {
    std::pmr::vector<std::pmr::string> strings{hakmem::resource()};
    ~late()
    {
        strings.emplace_back(500, 'z');
    }
};

late at_exit;

void check_resource()
{
    hakmem::memory_resource *resource = hakmem::resource();
    CHECK(resource == hakmem::resource());
    hakmem::memory_resource another;
    CHECK(resource->is_equal(another));
    CHECK(another == *resource);
    CHECK(!resource->is_equal(*std::pmr::null_memory_resource()));
    CHECK(!resource->is_equal(*std::pmr::new_delete_resource()));

    for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
        for (size_t size : test_sizes) {
            void *block = resource->allocate(size, alignment);
            CHECK(block != nullptr);
            CHECK_ALIGNED(block, alignment);
            CHECK(hak_usable_size(block) >= size);
            test_fill(block, size, size);
            CHECK_EQ(test_intact(block, size, size), size);
            another.deallocate(block, size, alignment);
        }
    }
    bool thrown = false;
    try {
        void *volatile block = resource->allocate(SIZE_MAX - 100, 64);
        resource->deallocate(block, SIZE_MAX - 100, 64);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);

    std::pmr::unordered_map<std::pmr::string, std::pmr::vector<int>> map(resource);
    for (int i = 0; i < 1000; i++) {
        std::pmr::string key("a key that is longer than what fits ", resource);
        key += std::to_string(i);
        map[key].assign(static_cast<size_t>(i), i);
    }
    CHECK_EQ(map.size(), 1000);
    std::pmr::monotonic_buffer_resource arena(resource);
    std::pmr::vector<int> vector(&arena);
    vector.resize(100000, 3);
    CHECK_EQ(vector[99999], 3);
    at_exit.strings.emplace_back(300, 'a');
}

#endif

} // namespace

int main()
{
    test_start(60);
    check_containers();
    check_alignment();
    check_limits<int>();
    check_limits<wide>();
    check_equality();
#if defined(__cpp_lib_memory_resource)
    check_resource();
#endif
    return test_result();
}
