/* assert.h: invariants as code. hak_assert is checked in debug and sanitizer builds (HAK_DEBUG);
 * in release builds it is not compiled. A failed one says where and aborts. */
#ifndef HAK_BASE_ASSERT_H
#define HAK_BASE_ASSERT_H

#if defined(HAK_DEBUG)
__attribute__((noreturn, cold)) void hak_assert_fail(const char *what, const char *file, int line);
#define hak_assert(x) ((x) ? (void)0 : hak_assert_fail(#x, __FILE__, __LINE__))
#else
#define hak_assert(x) ((void)sizeof(!(x)))
#endif

#endif
