/* Every operator new and delete of C++17: results, alignment, failure, new-handlers ([new.delete]).
 * The forms are called as functions, through volatile pointers: new-expressions may be elided. */
#include <cstddef>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../test.h"

/* clang declares these by itself only with -fsized-deallocation. */
void operator delete(void *, size_t) noexcept;
void operator delete[](void *, size_t) noexcept;
void operator delete(void *, size_t, std::align_val_t) noexcept;
void operator delete[](void *, size_t, std::align_val_t) noexcept;

namespace {

#if defined(HAK_NO_INTERPOSE)
const bool sanitizers_operators = true;
#else
const bool sanitizers_operators = false;
#endif

using std::align_val_t;
using std::nothrow_t;

const std::nothrow_t quiet{};

void *(*volatile new_plain)(size_t) = ::operator new;
void *(*volatile new_array)(size_t) = ::operator new[];
void *(*volatile new_nothrow)(size_t, const nothrow_t &) = ::operator new;
void *(*volatile new_array_nothrow)(size_t, const nothrow_t &) = ::operator new[];
void *(*volatile new_aligned)(size_t, align_val_t) = ::operator new;
void *(*volatile new_array_aligned)(size_t, align_val_t) = ::operator new[];
void *(*volatile new_aligned_nothrow)(size_t, align_val_t, const nothrow_t &) = ::operator new;
void *(*volatile new_array_aligned_nothrow)(size_t, align_val_t,
                                            const nothrow_t &) = ::operator new[];

void (*volatile delete_plain)(void *) = ::operator delete;
void (*volatile delete_array)(void *) = ::operator delete[];
void (*volatile delete_sized)(void *, size_t) = ::operator delete;
void (*volatile delete_array_sized)(void *, size_t) = ::operator delete[];
void (*volatile delete_nothrow)(void *, const nothrow_t &) = ::operator delete;
void (*volatile delete_array_nothrow)(void *, const nothrow_t &) = ::operator delete[];
void (*volatile delete_aligned)(void *, align_val_t) = ::operator delete;
void (*volatile delete_array_aligned)(void *, align_val_t) = ::operator delete[];
void (*volatile delete_sized_aligned)(void *, size_t, align_val_t) = ::operator delete;
void (*volatile delete_array_sized_aligned)(void *, size_t, align_val_t) = ::operator delete[];
void (*volatile delete_aligned_nothrow)(void *, align_val_t, const nothrow_t &) = ::operator delete;
void (*volatile delete_array_aligned_nothrow)(void *, align_val_t,
                                              const nothrow_t &) = ::operator delete[];

enum form { plain, array, aligned, array_aligned, form_count };

void *allocate(int form, size_t size, size_t alignment)
{
    switch (form) {
    case plain:
        return new_plain(size);
    case array:
        return new_array(size);
    case aligned:
        return new_aligned(size, align_val_t(alignment));
    default:
        return new_array_aligned(size, align_val_t(alignment));
    }
}

void *allocate_nothrow(int form, size_t size, size_t alignment)
{
    switch (form) {
    case plain:
        return new_nothrow(size, quiet);
    case array:
        return new_array_nothrow(size, quiet);
    case aligned:
        return new_aligned_nothrow(size, align_val_t(alignment), quiet);
    default:
        return new_array_aligned_nothrow(size, align_val_t(alignment), quiet);
    }
}

/* The deletes that may free what the form allocated, by turns. */
void release(int form, void *block, size_t size, size_t alignment, size_t turn)
{
    switch (form) {
    case plain:
        if (turn % 3 == 0)
            delete_plain(block);
        if (turn % 3 == 1)
            delete_sized(block, size);
        if (turn % 3 == 2)
            delete_nothrow(block, quiet);
        break;
    case array:
        if (turn % 3 == 0)
            delete_array(block);
        if (turn % 3 == 1)
            delete_array_sized(block, size);
        if (turn % 3 == 2)
            delete_array_nothrow(block, quiet);
        break;
    case aligned:
        if (turn % 3 == 0)
            delete_aligned(block, align_val_t(alignment));
        if (turn % 3 == 1)
            delete_sized_aligned(block, size, align_val_t(alignment));
        if (turn % 3 == 2)
            delete_aligned_nothrow(block, align_val_t(alignment), quiet);
        break;
    default:
        if (turn % 3 == 0)
            delete_array_aligned(block, align_val_t(alignment));
        if (turn % 3 == 1)
            delete_array_sized_aligned(block, size, align_val_t(alignment));
        if (turn % 3 == 2)
            delete_array_aligned_nothrow(block, align_val_t(alignment), quiet);
        break;
    }
}

/* Blocks of every form, tier and alignment: aligned, writable, nobody else's. */
void check_blocks()
{
    enum { count = 6 };
    for (int form = 0; form < form_count; form++) {
        size_t most = form >= aligned ? TEST_MIB(4) : 16;
        for (size_t alignment = 1; alignment <= most; alignment *= 4) {
            for (size_t size : test_sizes) {
                void *block[count];
                for (size_t i = 0; i < count; i++) {
                    block[i] = i % 2 == 0 ? allocate(form, size, alignment)
                                          : allocate_nothrow(form, size, alignment);
                    REQUIRE(block[i] != nullptr);
                    CHECK_ALIGNED(block[i], alignment < 16 ? 16 : alignment);
                    test_fill(block[i], size, i);
                }
                for (size_t i = 0; i < count; i++) {
                    CHECK_EQ(test_intact(block[i], size, i), size);
                    release(form, block[i], size, alignment, i);
                }
            }
        }
    }
}

/* Every delete frees indeed: gigabytes go through each. */
void check_deletes_free()
{
    size_t before = test_resident_bytes();
    for (int form = 0; form < form_count; form++) {
        for (size_t turn = 0; turn < 3; turn++) {
            for (int i = 0; i < 500; i++) {
                void *block = allocate(form, TEST_MIB(1), 4096);
                memset(block, 1, TEST_KIB(256));
                release(form, block, TEST_MIB(1), 4096, turn);
            }
        }
    }
    if (!TEST_SANITIZED)
        CHECK(test_resident_bytes() <= before + TEST_MIB(32));
}

/* Size 0: a pointer of its own. And null may be deleted. */
void check_zero_size()
{
    for (int form = 0; form < form_count; form++) {
        void *block[20];
        for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
            block[i] = i % 2 == 0 ? allocate(form, 0, 64) : allocate_nothrow(form, 0, 64);
            CHECK(block[i] != nullptr);
            for (size_t j = 0; j < i; j++) {
                CHECK(block[i] != block[j]);
            }
        }
        for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
            release(form, block[i], 0, 64, i);
            release(form, nullptr, 0, 64, i);
        }
    }
}

/* libstdc++ 12 rounds the size of an aligned allocation up to its alignment without looking whether
 * that wraps: without hakmem, the last of these would succeed. */
const size_t impossible[] = {
    TEST_SIZE_LIMIT,   TEST_SIZE_LIMIT + 1,
    (size_t)1 << 62,   (size_t)1 << 60,
    SIZE_MAX - 100000, SIZE_MAX - 4096,
#if !defined(HAK_TEST_GLIBC)
    SIZE_MAX - 15,     SIZE_MAX,
#endif
};
const size_t too_much = SIZE_MAX - 4096;

int handler_calls;

/* How an allocation ended. */
enum outcome { got_block, got_null, got_bad_alloc, got_other };

outcome try_allocate(int form, size_t size, size_t alignment, bool nothrow)
{
    try {
        void *block =
            nothrow ? allocate_nothrow(form, size, alignment) : allocate(form, size, alignment);
        return block != nullptr ? got_block : got_null;
    } catch (const std::bad_alloc &) {
        return got_bad_alloc;
    } catch (...) {
        return got_other;
    }
}

void check_failure_without_handler()
{
    std::set_new_handler(nullptr);
    for (int form = 0; form < form_count; form++) {
        for (size_t size : impossible) {
            CHECK_EQ(try_allocate(form, size, 64, false), got_bad_alloc);
            CHECK_EQ(try_allocate(form, size, 64, true), got_null);
        }
    }
}

/* The handler is called until it gives up. */
void give_up_after_three()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}

void check_handler_is_called_again()
{
    for (int form = 0; form < form_count; form++) {
        for (int nothrow = 0; nothrow < 2; nothrow++) {
            handler_calls = 0;
            std::set_new_handler(give_up_after_three);
            CHECK_EQ(try_allocate(form, SIZE_MAX / 2 + 1, 64, nothrow != 0),
                     nothrow != 0 ? got_null : got_bad_alloc);
            CHECK_EQ(handler_calls, 3);
        }
    }
    std::set_new_handler(nullptr);
}

/* A handler may throw: bad_alloc or what derives from it by the standard, anything in practice. */
struct no_memory : std::bad_alloc {};

void throw_no_memory()
{
    handler_calls++;
    throw no_memory();
}

void throw_other()
{
    handler_calls++;
    throw std::runtime_error("handler");
}

void check_handler_throws()
{
    for (int form = 0; form < form_count; form++) {
        handler_calls = 0;
        std::set_new_handler(throw_no_memory);
        try {
            allocate(form, too_much, 64);
            test_fail(__FILE__, __LINE__, "the handler's exception was lost");
        } catch (const no_memory &) {
            CHECK_EQ(handler_calls, 1);
        }
        std::set_new_handler(throw_other);
        CHECK_EQ(try_allocate(form, too_much, 64, false), got_other);
        CHECK_EQ(handler_calls, 2);
        /* The nothrow forms catch it, whatever it is. */
        CHECK_EQ(try_allocate(form, too_much, 64, true), got_null);
        CHECK_EQ(handler_calls, 3);
        std::set_new_handler(throw_no_memory);
        CHECK_EQ(try_allocate(form, too_much, 64, true), got_null);
        CHECK_EQ(handler_calls, 4);
    }
    std::set_new_handler(nullptr);
}

/* A success calls no handler. */
void check_handler_is_not_called()
{
    handler_calls = 0;
    std::set_new_handler(throw_no_memory);
    for (int form = 0; form < form_count; form++) {
        for (size_t size : test_sizes) {
            void *block = allocate(form, size, 64);
            release(form, block, size, 64, 0);
            block = allocate_nothrow(form, size, 64);
            release(form, block, size, 64, 1);
        }
    }
    std::set_new_handler(nullptr);
    CHECK_EQ(handler_calls, 0);
}

/* No power of two: bad_alloc or NULL, and no handler, which could not mend it. */
void check_invalid_alignments()
{
    handler_calls = 0;
    std::set_new_handler(give_up_after_three);
    for (size_t alignment : {size_t(0), size_t(3), size_t(24), size_t(4097), SIZE_MAX}) {
        for (int form = aligned; form < form_count; form++) {
            CHECK_EQ(try_allocate(form, 100, alignment, false), got_bad_alloc);
            CHECK_EQ(try_allocate(form, 100, alignment, true), got_null);
        }
    }
    CHECK_EQ(handler_calls, 0);
    std::set_new_handler(nullptr);
}

/* What a new-expression itself finds impossible: gcc throws bad_array_new_length, clang asks the
 * operator for SIZE_MAX bytes. */
void check_array_length()
{
    volatile size_t count = SIZE_MAX / 4;
    bool thrown = false;
    try {
        long *volatile numbers = new long[count];
        delete[] numbers;
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
}

struct alignas(256) wide {
    char bytes[300];
    ~wide()
    {
        bytes[0] = 0;
    }
};

void check_expressions()
{
    for (int i = 0; i < 100; i++) {
        wide *volatile one = new wide;
        wide *volatile several = new wide[7];
        std::vector<int> *volatile vectors = new std::vector<int>[5];
        CHECK_ALIGNED(one, 256);
        CHECK_ALIGNED(several, 256);
        vectors[3].assign(1000, i);
        delete one;
        delete[] several;
        delete[] vectors;
    }
}

/* An exception that passes through from a thread of its own ends nobody. */
void check_failure_in_threads()
{
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([] {
            for (int i = 0; i < 50; i++) {
                CHECK_EQ(try_allocate(i % form_count, too_much, 64, false), got_bad_alloc);
                CHECK_EQ(try_allocate(i % form_count, too_much, 64, true), got_null);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

} // namespace

int main()
{
    if (sanitizers_operators)
        return test_skip("the operators are the sanitizer's in this build");
    test_start(60);
    check_blocks();
    check_deletes_free();
    check_zero_size();
    check_failure_without_handler();
    check_handler_is_called_again();
    check_handler_throws();
    check_handler_is_not_called();
    check_invalid_alignments();
    check_array_length();
    check_expressions();
    check_failure_in_threads();
    return test_result();
}
