/* new.cpp: every operator new and delete of C++17.
 *
 * operator new(size_t) and operator delete(void *) are malloc's and free's own path, inlined. The
 * other forms follow [new.delete]: what the standard defines as a call of another form is (mostly in
 * forward.cpp) a jump to it through the dynamic symbol, so that a program that replaces only operator new(size_t) and
 * operator delete(void *) gets its own blocks back from new[], nothrow new and sized delete. (So
 * this file must not be linked with -Bsymbolic, and is best compiled with -fno-plt.) The size that
 * a sized delete brings is not trusted: a wrong one would corrupt.
 *
 * The library is linked without a C++ runtime. Whatever comes from one is a weak reference; where
 * those are empty, because a C program loaded a C++ plug-in into a scope of its own, the runtime is
 * looked up when an allocation fails. Where there is none at all, the caller is not C++: a failing
 * operator new then returns NULL with ENOMEM, as malloc does.
 *
 * Takes no lock; on failure only, the dynamic linker's. Sanitizer builds keep the sanitizer's
 * operators: there this file is empty.
 */
#if !defined(HAK_NO_INTERPOSE)

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

#include <new>

#include "heap/hot.h"

/* gcc wants the sized forms, which are in forward.cpp, beside the plain ones. */
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#endif

/* The compiler writes these names itself, for the one catch below. */
__asm__(".weak __gxx_personality_v0\n"
        ".weak __cxa_begin_catch\n"
        ".weak __cxa_end_catch\n"
        ".weak _Unwind_Resume\n"
        ".weak _ZSt9terminatev\n");

/* Weak, as in C++ runtimes: the linker takes a program's own operator instead, also where the
 * library is static, and no compiler inlines or folds what may be replaced. */
#define HAK_OPERATOR __attribute__((weak, visibility("default")))
#define HAK_WEAK_NAME(name) __asm__(name) __attribute__((weak))

typedef void *hak_new(size_t);
typedef void *hak_aligned_new(size_t, std::align_val_t);
typedef void *hak_nothrow_new(size_t, const std::nothrow_t &);
typedef void *hak_aligned_nothrow_new(size_t, std::align_val_t, const std::nothrow_t &);

extern "C" {
std::new_handler hak_linked_get_new_handler() noexcept HAK_WEAK_NAME("_ZSt15get_new_handlerv");
void hak_linked_throw_bad_alloc() HAK_WEAK_NAME("_ZSt17__throw_bad_allocv");
void *hak_linked_dlopen(const char *, int) HAK_WEAK_NAME("dlopen");
void *hak_linked_dlsym(void *, const char *) noexcept HAK_WEAK_NAME("dlsym");
int hak_linked_dlclose(void *) HAK_WEAK_NAME("dlclose");
}

namespace {

/* std::nothrow itself lives in the runtime. */
const std::nothrow_t nothrow = std::nothrow_t();

/* What a failing allocation needs of the C++ runtime. All members are null where there is none. */
struct cxx_runtime {
    std::new_handler (*get_new_handler)();
    void (*throw_bad_alloc)();
    /* The runtime's own nothrow forms: they catch for us where our catch is not linked. */
    hak_nothrow_new *nothrow_new;
    hak_aligned_nothrow_new *aligned_nothrow_new;
};

/* dl_iterate_phdr's callback: copies the path of the C++ runtime's library into `data`. */
int runtime_module(struct dl_phdr_info *info, size_t, void *data)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != nullptr ? slash + 1 : info->dlpi_name;
    if (strncmp(name, "libstdc++.so", 12) != 0 && strncmp(name, "libc++.so", 9) != 0) {
        return 0;
    }
    size_t length = strlen(info->dlpi_name);
    if (length >= PATH_MAX) {
        return 0;
    }
    memcpy(data, info->dlpi_name, length + 1);
    return 1;
}

template <typename function>
void runtime_symbol(void *library, const char *name, function **out)
{
    void *symbol = hak_linked_dlsym(library, name);
    memcpy(out, &symbol, sizeof(symbol));
}

/* The path is one that is loaded, so that dlopen finds it by name and reads no file. It is opened
 * outside the walk: dlopen takes the linker's locks in the other order. */
__attribute__((cold, noinline)) cxx_runtime runtime_find()
{
    cxx_runtime found = {};
    if (hak_linked_throw_bad_alloc != nullptr) {
        found.get_new_handler = hak_linked_get_new_handler;
        found.throw_bad_alloc = hak_linked_throw_bad_alloc;
        return found;
    }
    char path[PATH_MAX];
    if (hak_linked_dlopen == nullptr || hak_linked_dlsym == nullptr ||
        hak_linked_dlclose == nullptr || dl_iterate_phdr(runtime_module, path) == 0) {
        return found;
    }
    void *library = hak_linked_dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) {
        return found;
    }
    runtime_symbol(library, "_ZSt15get_new_handlerv", &found.get_new_handler);
    runtime_symbol(library, "_ZSt17__throw_bad_allocv", &found.throw_bad_alloc);
    runtime_symbol(library, "_ZnwmRKSt9nothrow_t", &found.nothrow_new);
    runtime_symbol(library, "_ZnwmSt11align_val_tRKSt9nothrow_t", &found.aligned_nothrow_new);
    hak_linked_dlclose(library);
    return found;
}

/* Alignment 0: any. */
void *allocate(size_t alignment, size_t size)
{
    return alignment == 0 ? hak_hot_alloc(size, hak_malloc_slow)
                          : hak_aligned_slow(alignment, size);
}

/* [new.delete.single]: call the new-handler and try again, until there is a block or no handler. */
void *handler_loop(const cxx_runtime &runtime, size_t alignment, size_t size)
{
    while (runtime.get_new_handler != nullptr) {
        std::new_handler handler = runtime.get_new_handler();
        if (handler == nullptr) {
            break;
        }
        handler();
        void *block = allocate(alignment, size);
        if (block != nullptr) {
            return block;
        }
    }
    return nullptr;
}

__attribute__((cold, noinline)) void *fail(const cxx_runtime &runtime)
{
    if (runtime.throw_bad_alloc != nullptr) {
        runtime.throw_bad_alloc();
    }
    errno = ENOMEM;
    return nullptr;
}

__attribute__((cold, noinline)) void *retry(size_t alignment, size_t size)
{
    const cxx_runtime runtime = runtime_find();
    void *block = handler_loop(runtime, alignment, size);
    return block != nullptr ? block : fail(runtime);
}

__attribute__((cold, noinline)) void *retry_nothrow(size_t alignment, size_t size) noexcept
{
    const cxx_runtime runtime = runtime_find();
    if (runtime.get_new_handler == nullptr || runtime.get_new_handler() == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    /* A runtime that is linked with us links the catch below as well. */
    if (hak_linked_throw_bad_alloc == nullptr) {
        if (alignment == 0 && runtime.nothrow_new != nullptr) {
            return runtime.nothrow_new(size, nothrow);
        }
        if (alignment != 0 && runtime.aligned_nothrow_new != nullptr) {
            return runtime.aligned_nothrow_new(size, std::align_val_t(alignment), nothrow);
        }
        errno = ENOMEM;
        return nullptr;
    }
    try {
        void *block = handler_loop(runtime, alignment, size);
        if (block == nullptr) {
            errno = ENOMEM;
        }
        return block;
    } catch (...) {
        errno = ENOMEM;
        return nullptr;
    }
}

__attribute__((noinline)) void *new_slow(size_t size, hak_hot *heap)
{
    void *block = hak_malloc_slow(size, heap);
    return hak_likely(block != nullptr) ? block : retry(0, size);
}

__attribute__((noinline)) void *new_nothrow_slow(size_t size, hak_hot *heap) noexcept
{
    void *block = hak_malloc_slow(size, heap);
    return hak_likely(block != nullptr) ? block : retry_nothrow(0, size);
}

/* No handler can mend an alignment that is not a power of two: it is not asked. */
void *aligned_new(size_t alignment, size_t size)
{
    if (hak_unlikely(!hak_is_power_of_two(alignment))) {
        return fail(runtime_find());
    }
    void *block = hak_aligned_slow(alignment, size);
    return hak_likely(block != nullptr) ? block : retry(alignment, size);
}

void *aligned_new_nothrow(size_t alignment, size_t size) noexcept
{
    if (hak_unlikely(!hak_is_power_of_two(alignment))) {
        errno = ENOMEM;
        return nullptr;
    }
    void *block = hak_aligned_slow(alignment, size);
    return hak_likely(block != nullptr) ? block : retry_nothrow(alignment, size);
}

/* Nothrow forms where the program replaced the form that they are defined by. Without the runtime's
 * catch an exception goes through these, as it would through a function of C. */
__attribute__((cold, noinline)) void *replaced_nothrow(hak_new *form, size_t size) noexcept
{
    try {
        return form(size);
    } catch (...) {
        return nullptr;
    }
}

__attribute__((cold, noinline)) void *replaced_nothrow(hak_aligned_new *form, size_t size,
                                                       std::align_val_t alignment) noexcept
{
    try {
        return form(size, alignment);
    } catch (...) {
        return nullptr;
    }
}

} // namespace

/* ---- new ------------------------------------------------------------------------------------- */

HAK_OPERATOR void *operator new(size_t size)
{
    return hak_hot_alloc(size, new_slow);
}

HAK_OPERATOR void *operator new(size_t size, std::align_val_t alignment)
{
    return aligned_new(static_cast<size_t>(alignment), size);
}

/* The forms above under names that nothing replaces: what a form is compared with to know whether
 * the program brought its own. */
extern "C" {
#define HAK_OWN(name) __attribute__((alias(name), visibility("hidden"), malloc, alloc_size(1)))
void *hak_own_new(size_t) HAK_OWN("_Znwm");
void *hak_own_new_aligned(size_t, std::align_val_t) HAK_OWN("_ZnwmSt11align_val_t");
/* Of forward.cpp. */
void *hak_own_new_array(size_t) __attribute__((visibility("hidden")));
void *hak_own_new_array_aligned(size_t, std::align_val_t) __attribute__((visibility("hidden")));
}

static_assert(sizeof(size_t) == sizeof(unsigned long), "the mangled names above say m for size_t");

/* Whether the program has operators of its own in place of these: the one that everybody calls is
 * not the one in this file. Addresses are compared at run time, not by the compiler. */
template <typename form>
static inline bool is_replaced(form *everybodys, form *own)
{
    __asm__("" : "+r"(everybodys));
    return everybodys != own;
}

HAK_OPERATOR void *operator new(size_t size, const std::nothrow_t &) noexcept
{
    if (hak_unlikely(is_replaced<hak_new>(::operator new, hak_own_new))) {
        return replaced_nothrow(::operator new, size);
    }
    return hak_hot_alloc(size, new_nothrow_slow);
}

HAK_OPERATOR void *operator new[](size_t size, const std::nothrow_t &) noexcept
{
    if (hak_unlikely(is_replaced<hak_new>(::operator new, hak_own_new) ||
                     is_replaced<hak_new>(::operator new[], hak_own_new_array))) {
        return replaced_nothrow(::operator new[], size);
    }
    return hak_hot_alloc(size, new_nothrow_slow);
}

HAK_OPERATOR void *operator new(size_t size, std::align_val_t alignment,
                                const std::nothrow_t &) noexcept
{
    if (hak_unlikely(is_replaced<hak_aligned_new>(::operator new, hak_own_new_aligned))) {
        return replaced_nothrow(::operator new, size, alignment);
    }
    return aligned_new_nothrow(static_cast<size_t>(alignment), size);
}

HAK_OPERATOR void *operator new[](size_t size, std::align_val_t alignment,
                                  const std::nothrow_t &) noexcept
{
    if (hak_unlikely(is_replaced<hak_aligned_new>(::operator new, hak_own_new_aligned) ||
                     is_replaced<hak_aligned_new>(::operator new[], hak_own_new_array_aligned))) {
        return replaced_nothrow(::operator new[], size, alignment);
    }
    return aligned_new_nothrow(static_cast<size_t>(alignment), size);
}

/* ---- delete ---------------------------------------------------------------------------------- */

HAK_OPERATOR void operator delete(void *block) noexcept
{
    hak_hot_free(block);
}

HAK_OPERATOR void operator delete(void *block, std::align_val_t) noexcept
{
    hak_hot_free(block);
}

#endif
