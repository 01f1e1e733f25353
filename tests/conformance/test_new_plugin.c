/* The operators in a process that is not C++, as of an interpreter that loads C++ plug-ins into a
 * scope of their own: no weak reference of the library finds the C++ runtime there. A failing
 * operator new must throw all the same, or the plug-in goes on with a null pointer.
 *
 * The plug-in is the runtime itself: its own operator new(size, nothrow) calls the process's
 * operator new(size) and catches what that throws, which C can't. */
#include <dlfcn.h>

#include "../test.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("the operators are not hakmem's in this build");
}
#else

#if defined(HAK_TEST_GLIBC)
#define OPERATOR __attribute__((weak))
#else
#define OPERATOR
#endif

/* C's names for operator new and delete. const void * stands for const std::nothrow_t &. */
extern void *_Znwm(size_t size) OPERATOR;
extern void *_ZnwmSt11align_val_t(size_t size, size_t alignment) OPERATOR;
extern void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow) OPERATOR;
extern void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment,
                                                const void *nothrow) OPERATOR;
extern void _ZdlPv(void *block) OPERATOR;

static void *(*volatile new_plain)(size_t) = _Znwm;
static void *(*volatile new_aligned)(size_t, size_t) = _ZnwmSt11align_val_t;
static void *(*volatile new_nothrow)(size_t, const void *) = _ZnwmRKSt9nothrow_t;
static void *(*volatile new_aligned_nothrow)(size_t, size_t,
                                             const void *) = _ZnwmSt11align_val_tRKSt9nothrow_t;

static const char nothrow;
static const size_t too_much = SIZE_MAX - 4096;

/* Where there is no runtime to throw with, the caller is not C++: NULL, as from malloc. */
static void check_without_runtime(void)
{
    CHECK_FAILS(new_plain(too_much), ENOMEM);
    CHECK_FAILS(new_aligned(too_much, 64), ENOMEM);
    CHECK_FAILS(new_aligned(100, 48), ENOMEM);
    CHECK_FAILS(new_nothrow(too_much, &nothrow), ENOMEM);
    CHECK_FAILS(new_aligned_nothrow(too_much, 64, &nothrow), ENOMEM);
    void *block = new_plain(100);
    CHECK(block != NULL);
    _ZdlPv(block);
}

static void *library;

static void find(const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    REQUIRE(symbol != NULL);
    memcpy(function, &symbol, sizeof(symbol));
}

static int handler_calls;

static void give_up(void);
static void (*throw_bad_alloc)(void);
static void (*(*set_new_handler)(void (*)(void)))(void);

static void give_up(void)
{
    if (++handler_calls == 3)
        set_new_handler(NULL);
}

static void check_with_runtime(void)
{
    void *(*plugin_new)(size_t, const void *);
    void *(*plugin_new_aligned)(size_t, size_t, const void *);
    find("_ZnwmRKSt9nothrow_t", &plugin_new);
    find("_ZnwmSt11align_val_tRKSt9nothrow_t", &plugin_new_aligned);
    find("_ZSt15set_new_handlerPFvvE", &set_new_handler);
    find("_ZSt17__throw_bad_allocv", &throw_bad_alloc);

    /* Not in the scope of the process: what the weak references see. */
    CHECK(dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv") == NULL);

    void *block = plugin_new(100, &nothrow);
    CHECK(block != NULL);
    _ZdlPv(block);
    CHECK(plugin_new(too_much, &nothrow) == NULL);
    CHECK(plugin_new_aligned(too_much, 64, &nothrow) == NULL);

    handler_calls = 0;
    set_new_handler(give_up);
    CHECK(plugin_new(too_much, &nothrow) == NULL);
    CHECK_EQ(handler_calls, 3);
    handler_calls = 0;
    set_new_handler(give_up);
    CHECK(new_nothrow(too_much, &nothrow) == NULL);
    CHECK_EQ(handler_calls, 3);
    handler_calls = 0;
    set_new_handler(give_up);
    CHECK(new_aligned_nothrow(too_much, 64, &nothrow) == NULL);
    CHECK_EQ(handler_calls, 3);

    /* A handler that throws: through operator new, into whose catch is there. */
    set_new_handler(throw_bad_alloc);
    CHECK(plugin_new(too_much, &nothrow) == NULL);
    CHECK(new_nothrow(too_much, &nothrow) == NULL);
    CHECK(new_aligned_nothrow(too_much, 64, &nothrow) == NULL);
    set_new_handler(NULL);
}

int main(void)
{
    test_start(60);
    if (new_plain == NULL)
        return test_skip("the C library has no operator new");
    check_without_runtime();
    library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL)
        return test_result() != 0 ? 1 : test_skip("no libstdc++.so.6 to load");
    check_with_runtime();
    return test_result();
}
#endif
