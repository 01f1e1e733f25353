/* forward.cpp: the forms of operator new and delete that the standard defines as a call of another.
 *
 * Each is a jump to that other form through the dynamic symbol, so that a program's replacement of it
 * is honoured (new.cpp). They have a file of their own because clang, where a function is defined in
 * the file that calls it, jumps by way of a stub even with -fno-plt: one more instruction on the hot
 * path of operator new[] and of sized delete.
 */
#if !defined(HAK_NO_INTERPOSE)

#include <stddef.h>

#include <new>

/* gcc wants the plain forms, which are in new.cpp, beside the sized ones. */
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif

#define HAK_OPERATOR __attribute__((weak, visibility("default")))

HAK_OPERATOR void *operator new[](size_t size)
{
    return ::operator new(size);
}

HAK_OPERATOR void *operator new[](size_t size, std::align_val_t alignment)
{
    return ::operator new(size, alignment);
}

HAK_OPERATOR void operator delete(void *block, size_t) noexcept
{
    ::operator delete(block);
}

HAK_OPERATOR void operator delete(void *block, const std::nothrow_t &) noexcept
{
    ::operator delete(block);
}

HAK_OPERATOR void operator delete[](void *block) noexcept
{
    ::operator delete(block);
}

HAK_OPERATOR void operator delete[](void *block, size_t) noexcept
{
    ::operator delete[](block);
}

HAK_OPERATOR void operator delete[](void *block, const std::nothrow_t &) noexcept
{
    ::operator delete[](block);
}

HAK_OPERATOR void operator delete(void *block, size_t, std::align_val_t alignment) noexcept
{
    ::operator delete(block, alignment);
}

HAK_OPERATOR void operator delete(void *block, std::align_val_t alignment,
                                  const std::nothrow_t &) noexcept
{
    ::operator delete(block, alignment);
}

HAK_OPERATOR void operator delete[](void *block, std::align_val_t alignment) noexcept
{
    ::operator delete(block, alignment);
}

HAK_OPERATOR void operator delete[](void *block, size_t, std::align_val_t alignment) noexcept
{
    ::operator delete[](block, alignment);
}

HAK_OPERATOR void operator delete[](void *block, std::align_val_t alignment,
                                    const std::nothrow_t &) noexcept
{
    ::operator delete[](block, alignment);
}

/* Own forms under names that nothing replaces, for new.cpp to compare with. */
extern "C" {
#define HAK_OWN(name) __attribute__((alias(name), visibility("hidden"), malloc, alloc_size(1)))
void *hak_own_new_array(size_t) HAK_OWN("_Znam");
void *hak_own_new_array_aligned(size_t, std::align_val_t) HAK_OWN("_ZnamSt11align_val_t");
}

#endif
