/* malloc_info: glibc. Well-formed XML on any stream. */
#include "blocks.h"

#if defined(HAK_NO_INTERPOSE)
int main(void)
{
    return test_skip("malloc_info is the C library's in this build");
}
#else

static int (*volatile info_function)(int, FILE *) = malloc_info;

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\n' || *at == '\t')
        at++;
    return at;
}

/* Reads attributes: name="value" ... Returns where they end, or NULL. */
static const char *read_attributes(const char *at)
{
    at = skip_space(at);
    while (is_name(*at)) {
        while (is_name(*at))
            at++;
        if (*at++ != '=')
            return NULL;
        if (*at++ != '"')
            return NULL;
        while (*at != '"') {
            if (*at == '\0' || *at == '<' || *at == '&')
                return NULL;
            at++;
        }
        at = skip_space(at + 1);
    }
    return at;
}

/* One element with text and elements in it. Returns where it ends, or NULL if it is malformed. No
 * entities, comments or prologue: a document of figures needs none. */
static const char *read_element(const char *at, int depth)
{
    if (depth > 16 || *at != '<' || !is_name(at[1]))
        return NULL;
    const char *name = ++at;
    while (is_name(*at))
        at++;
    size_t length = (size_t)(at - name);
    at = read_attributes(at);
    if (at == NULL)
        return NULL;
    if (at[0] == '/' && at[1] == '>')
        return at + 2;
    if (*at++ != '>')
        return NULL;
    for (;;) {
        while (*at != '<') {
            if (*at == '\0' || *at == '>' || *at == '&')
                return NULL;
            at++;
        }
        if (at[1] == '/')
            break;
        at = read_element(at, depth + 1);
        if (at == NULL)
            return NULL;
    }
    at += 2;
    if (strncmp(at, name, length) != 0)
        return NULL;
    at = skip_space(at + length);
    return *at == '>' ? at + 1 : NULL;
}

static void check_document(const char *text)
{
    CHECK_EQ(strncmp(text, "<malloc version=\"", 17), 0);
    const char *end = read_element(text, 0);
    CHECK(end != NULL);
    if (end != NULL)
        CHECK_EQ(*skip_space(end), '\0');
}

int main(void)
{
    test_start(60);
    void *block[20];
    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        block[i] = malloc(test_sizes[i]);
    }

    /* A file, after text that is still in the stream's buffer: order is kept. */
    static char text[1 << 20];
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    fputs("before\n", file);
    int result;
    CHECK_KEEPS_ERRNO(result = info_function(0, file));
    CHECK_EQ(result, 0);
    fputs("after", file);
    rewind(file);
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    text[length] = '\0';
    CHECK_EQ(strncmp(text, "before\n", 7), 0);
    CHECK(length > 12 && strcmp(text + length - 5, "after") == 0);
    if (length > 12) {
        text[length - 5] = '\0';
        check_document(text + 7);
    }
    fclose(file);

    /* A stream in memory has no file descriptor. */
    char *memory = NULL;
    size_t memory_length = 0;
    file = open_memstream(&memory, &memory_length);
    REQUIRE(file != NULL);
    CHECK_EQ(info_function(0, file), 0);
    fclose(file);
    REQUIRE(memory != NULL);
    check_document(memory);
    free(memory);

    /* No option is defined. */
    result = info_function(1, stderr);
    CHECK_EQ(result == EINVAL || result == -1, true);

    for (size_t i = 0; i < TEST_COUNT_OF(block); i++) {
        free(block[i]);
    }
    return test_result();
}
#endif
