#include "base/assert.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/format.h"

#if defined(HAK_DEBUG)
/* Not through the log: an invariant that failed is said whatever the log level. */
void hak_assert_fail(const char *what, const char *file, int line)
{
    char buffer[512];
    hak_text text;

    /* One byte is kept back, so that even a cut line ends. */
    hak_text_init(&text, buffer, sizeof(buffer) - 1);
    hak_text_put(&text, "hakmem: assertion failed at ");
    hak_text_put(&text, file);
    hak_text_char(&text, ':');
    hak_text_signed(&text, line);
    hak_text_put(&text, ": ");
    hak_text_put(&text, what);
    buffer[text.length] = '\n';
    hak_write_all(STDERR_FILENO, buffer, text.length + 1);
    abort();
}
#endif
