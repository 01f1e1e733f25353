/* A program may replace operator new(size_t) and operator delete(void *) alone: [new.delete] defines
 * the other forms by these, so that its blocks and the library's never meet in the wrong delete.
 * Here the program's blocks stand 64 bytes into a block of malloc, which no other free can take. */
#include <cstddef>
#include <map>
#include <new>
#include <string>

#include "../test.h"

/* clang declares these by itself only with -fsized-deallocation. */
void operator delete(void *, size_t) noexcept;
void operator delete[](void *, size_t) noexcept;

/* Leaving the sized forms out is the point. */
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wsized-deallocation"

namespace {

#if defined(HAK_NO_INTERPOSE)
const bool sanitizers_operators = true;
#else
const bool sanitizers_operators = false;
#endif

int news, deletes, failures;
bool failing;

const std::nothrow_t quiet{};
const size_t offset = 64;

} // namespace

void *operator new(size_t size)
{
    char *base = failing ? nullptr : static_cast<char *>(malloc(size + offset));
    if (base == nullptr) {
        failures++;
        throw std::bad_alloc();
    }
    memcpy(base, "program", 8);
    news++;
    return base + offset;
}

void operator delete(void *block) noexcept
{
    if (block == nullptr)
        return;
    char *base = static_cast<char *>(block) - offset;
    REQUIRE(memcmp(base, "program", 8) == 0);
    memset(base, 0, 8);
    deletes++;
    free(base);
}

namespace {

void *(*volatile new_plain)(size_t) = ::operator new;
void *(*volatile new_array)(size_t) = ::operator new[];
void *(*volatile new_nothrow)(size_t, const std::nothrow_t &) = ::operator new;
void *(*volatile new_array_nothrow)(size_t, const std::nothrow_t &) = ::operator new[];
void (*volatile delete_plain)(void *) = ::operator delete;
void (*volatile delete_sized)(void *, size_t) = ::operator delete;
void (*volatile delete_nothrow)(void *, const std::nothrow_t &) = ::operator delete;
void (*volatile delete_array)(void *) = ::operator delete[];
void (*volatile delete_array_sized)(void *, size_t) = ::operator delete[];
void (*volatile delete_array_nothrow)(void *, const std::nothrow_t &) = ::operator delete[];

void check_forms()
{
    for (size_t size = 1; size < 100000; size = size * 3 + 1) {
        void *block[6] = {new_plain(size), new_nothrow(size, quiet),       new_plain(size),
                          new_array(size), new_array_nothrow(size, quiet), new_array(size)};
        int before = deletes;
        delete_plain(block[0]);
        delete_sized(block[1], size);
        delete_nothrow(block[2], quiet);
        delete_array(block[3]);
        delete_array_sized(block[4], size);
        delete_array_nothrow(block[5], quiet);
        CHECK_EQ(deletes - before, 6);
    }
    CHECK_EQ(news, deletes);
}

/* Where the program's operator throws, the nothrow forms return NULL. */
void check_failure()
{
    failing = true;
    CHECK(new_nothrow(10, quiet) == nullptr);
    CHECK(new_array_nothrow(10, quiet) == nullptr);
    CHECK_EQ(failures, 2);
    bool thrown = false;
    try {
        new_array(10);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
    failing = false;
}

/* The over-aligned forms are not defined by the replaced ones: the library's stay a pair. */
void check_aligned()
{
    int before = news;
    void *block = ::operator new(100, std::align_val_t(128));
    CHECK_ALIGNED(block, 128);
    test_fill(block, 100, 1);
    ::operator delete(block, std::align_val_t(128));
    CHECK_EQ(news, before);
}

void check_library_code()
{
    std::map<std::string, std::string> map;
    for (int i = 0; i < 2000; i++) {
        map["a key that is longer than what fits " + std::to_string(i)] = std::string(40, 'x');
    }
    CHECK_EQ(map.size(), 2000);
    CHECK(news > 4000);
}

} // namespace

int main()
{
    if (sanitizers_operators)
        return test_skip("the operators are the sanitizer's in this build");
    test_start(60);
    check_forms();
    check_failure();
    check_aligned();
    check_library_code();
    CHECK_EQ(news, deletes);
    return test_result();
}
