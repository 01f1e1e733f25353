/* witness.c: says, from inside every process of a measured run, which allocator served it.
 *
 *     cc -std=c11 -O2 -Wall -Wextra -fPIC -fvisibility=hidden -shared -Wl,-z,now
 *        bench/witness/witness.c -o libhakwitness.so
 *
 * Preloaded behind the allocator: LD_PRELOAD="alloc.so:libhakwitness.so", with HAKWITNESS
 * naming a folder. Without that variable it does nothing. Each image of a process writes the file
 * "<pid>-<start in ns>.json" there at its start: who it is, and the objects that define malloc and
 * its kin. It writes the file anew at its end, with "ended": true and what the allocators count. A
 * forked child that ends writes one of its own, with "forked": true. An image that ends by exec or
 * by a signal keeps the record of its start.
 *
 * What must hold: it is silent; it never calls malloc, nor anything that does (dlsym does where a
 * name is missing), so it looks symbols up by itself; what it does at the end is safe in a signal
 * handler too, since _exit may be called there. Allocators' counters are not (they take locks):
 * they are asked under an alarm that ends the process, with its own status, if one never answers.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "../../include/hakmem/hakmem.h"

#define EXPORT __attribute__((visibility("default")))

/* Longer paths are cut. Record of the biggest: seven paths, each with every character escaped. */
enum { PATH_BYTES = 1024, RECORD_BYTES = 7 * 2 * PATH_BYTES + 2048, PATIENCE_MS = 500 };

/* ---- Which object defines a function --------------------------------------------------------- */

typedef struct found {
    void *address;
    char object[PATH_BYTES]; /* "" for the program itself */
} found;

typedef struct query {
    const char *name;
    const char *within; /* look in this object only; NULL: in all */
    found *result;
} query;

typedef struct tables {
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
} tables;

/* The C library may have added the load address to pointers in the dynamic section already (glibc
 * does, musl and the vdso do not). No unrelocated one is as high as an address of a library. */
static const void *at(const struct dl_phdr_info *info, ElfW(Addr) pointer)
{
    ElfW(Addr) address = pointer < info->dlpi_addr ? info->dlpi_addr + pointer : pointer;
    return (const void *)address; /* NOLINT: an address that the loader gave as a number */
}

static bool tables_of(const struct dl_phdr_info *info, tables *out)
{
    const ElfW(Dyn) *entry = NULL;
    size_t i;
    memset(out, 0, sizeof *out);
    for (i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); /* NOLINT */
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            out->symbols = at(info, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            out->names = at(info, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_GNU_HASH)
            out->gnu_hash = at(info, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_HASH)
            out->hash = at(info, entry->d_un.d_ptr);
    }
    return out->symbols != NULL && out->names != NULL;
}

/* A symbol that is only used here, not defined, has an address too in a program that is linked at a
 * fixed place and takes the function's address: that of its stub. It is no definition. */
static bool defines(const tables *t, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &t->symbols[index];
    return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
           (symbol->st_info & 0xf) == STT_FUNC && strcmp(t->names + symbol->st_name, name) == 0;
}

/* Index of the symbol, 0 where there is none. Layout of the table: the GNU hash section, as binutils
 * write it: counts of buckets, first hashed symbol, words of the filter, its shift; the filter;
 * buckets; chains, where the lowest bit ends a chain. */
static uint32_t find_gnu(const tables *t, const char *name)
{
    uint32_t buckets = t->gnu_hash[0];
    uint32_t first = t->gnu_hash[1];
    const uint32_t *bucket = t->gnu_hash + 4 + t->gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = 5381;
    uint32_t index;
    const char *c;
    for (c = name; *c != '\0'; c++)
        hash = hash * 33 + (unsigned char)*c;
    index = buckets == 0 ? 0 : bucket[hash % buckets];
    if (index < first)
        return 0;
    for (;; index++) {
        uint32_t here = chain[index - first];
        if ((here | 1) == (hash | 1) && defines(t, index, name))
            return index;
        if (here & 1)
            return 0;
    }
}

/* The same in the older table: counts of buckets and of symbols first. */
static uint32_t find_sysv(const tables *t, const char *name)
{
    uint32_t index;
    for (index = 1; index < t->hash[1]; index++)
        if (defines(t, index, name))
            return index;
    return 0;
}

static int look_in(struct dl_phdr_info *info, size_t size, void *data)
{
    query *q = data;
    tables t;
    uint32_t index = 0;
    (void)size;
    if (q->within != NULL && strcmp(q->within, info->dlpi_name) != 0)
        return 0;
    if (!tables_of(info, &t))
        return 0;
    if (t.gnu_hash != NULL)
        index = find_gnu(&t, q->name);
    else if (t.hash != NULL)
        index = find_sysv(&t, q->name);
    if (index == 0)
        return 0;
    q->result->address = (void *)(info->dlpi_addr + t.symbols[index].st_value); /* NOLINT */
    strncpy(q->result->object, info->dlpi_name, sizeof q->result->object - 1);
    return 1;
}

/* The definition that the dynamic linker prefers: objects are listed in the order that it searches
 * them in: the program, what is preloaded, then what they need. */
static bool find(const char *name, const char *within, found *out)
{
    query q = {name, within, out};
    memset(out, 0, sizeof *out);
    return dl_iterate_phdr(look_in, &q) != 0;
}

/* ---- What is known of this image ------------------------------------------------------------- */

/* glibc's counts of its own heap: mallinfo2, or before 2.33 mallinfo, in ints. */
typedef struct heap_counts {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
} heap_counts;
typedef struct heap_counts_int {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
} heap_counts_int;

static struct {
    bool on;
    bool forked;
    pid_t pid;
    uint64_t start_ns;
    char folder[PATH_BYTES];
    char executable[PATH_BYTES];
    char malloc_object[PATH_BYTES];
    char free_object[PATH_BYTES];
    char calloc_object[PATH_BYTES];
    char realloc_object[PATH_BYTES];
    char new_object[PATH_BYTES];
    char libc[PATH_BYTES];
    bool has_new;
    int (*hak_stats)(hak_stats_data *, size_t);
    heap_counts (*mallinfo2)(void);
    heap_counts_int (*mallinfo)(void);
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    void (*mi_process_info)(size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *,
                            size_t *);
    int (*tcmalloc_property)(const char *, size_t *);
} image;

static void keep_object(char *into, const found *one)
{
    memcpy(into, one->object[0] == '\0' ? image.executable : one->object, PATH_BYTES);
}

static void keep_function(void *into, const char *name, const char *within)
{
    found one;
    if (find(name, within, &one))
        memcpy(into, &one.address, sizeof one.address);
}

static void look_around(void)
{
    static found one;
    static char heap[PATH_BYTES]; /* the object of malloc as the loader calls it */
    if (find("malloc", NULL, &one)) {
        keep_object(image.malloc_object, &one);
        memcpy(heap, one.object, sizeof heap);
        /* Counters of any other object count something else. */
        keep_function(&image.hak_stats, "hak_stats", heap);
        keep_function(&image.mallctl, "mallctl", heap);
        keep_function(&image.mi_process_info, "mi_process_info", heap);
        keep_function(&image.tcmalloc_property, "MallocExtension_GetNumericProperty", heap);
    }
    if (find("free", NULL, &one))
        keep_object(image.free_object, &one);
    if (find("calloc", NULL, &one))
        keep_object(image.calloc_object, &one);
    if (find("realloc", NULL, &one))
        keep_object(image.realloc_object, &one);
    image.has_new = find(sizeof(size_t) == 8 ? "_Znwm" : "_Znwj", NULL, &one);
    if (image.has_new)
        keep_object(image.new_object, &one);
    /* Its own heap is asked, whoever else defines mallinfo. */
    if (find("__libc_start_main", NULL, &one)) {
        keep_object(image.libc, &one);
        memcpy(heap, one.object, sizeof heap);
        keep_function(&image.mallinfo2, "mallinfo2", heap);
        keep_function(&image.mallinfo, "mallinfo", heap);
    }
}

/* ---- Text, without stdio --------------------------------------------------------------------- */

typedef struct text {
    size_t used;
    char bytes[RECORD_BYTES];
} text;

static void put(text *t, const char *s)
{
    for (; *s != '\0' && t->used < sizeof t->bytes; s++)
        t->bytes[t->used++] = *s;
}

static void put_number(text *t, uint64_t value)
{
    char digits[24];
    char *p = digits + sizeof digits - 1;
    *p = '\0';
    do {
        *--p = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    put(t, p);
}

static void put_count(text *t, const char *key, uint64_t value)
{
    put(t, ", \"");
    put(t, key);
    put(t, "\": ");
    put_number(t, value);
}

/* A byte that JSON does not take as it is becomes an underscore. */
static void put_path(text *t, const char *key, const char *path)
{
    char one[2] = {0, 0};
    put(t, ", \"");
    put(t, key);
    put(t, "\": \"");
    for (; *path != '\0'; path++) {
        if (*path == '"' || *path == '\\')
            put(t, "\\");
        one[0] = (unsigned char)*path < 0x20 ? '_' : *path;
        put(t, one);
    }
    put(t, "\"");
}

/* ---- Counters -------------------------------------------------------------------------------- */

static uint64_t jemalloc_count(const char *name, size_t bytes)
{
    uint64_t wide = 0;
    size_t narrow = 0;
    if (bytes == sizeof wide && image.mallctl(name, &wide, &bytes, NULL, 0) == 0)
        return wide;
    bytes = sizeof narrow;
    return image.mallctl(name, &narrow, &bytes, NULL, 0) == 0 ? narrow : 0;
}

static void put_counters(text *t)
{
    if (image.hak_stats != NULL) {
        static hak_stats_data stats;
        if (image.hak_stats(&stats, sizeof stats) == 0)
            put_count(t, "hak_served_bytes", stats.served_bytes);
    }
    if (image.mallctl != NULL) {
        uint64_t epoch = 1;
        image.mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
        put_count(t, "jemalloc_thread_bytes", jemalloc_count("thread.allocated", sizeof epoch));
        put_count(t, "jemalloc_live_bytes", jemalloc_count("stats.allocated", sizeof(size_t)));
    }
    if (image.mi_process_info != NULL) {
        size_t peak = 0;
        size_t unused[7];
        image.mi_process_info(&unused[0], &unused[1], &unused[2], &unused[3], &unused[4],
                              &unused[5], &peak, &unused[6]);
        put_count(t, "mimalloc_peak_bytes", peak);
    }
    if (image.tcmalloc_property != NULL) {
        size_t bytes = 0;
        if (image.tcmalloc_property("generic.heap_size", &bytes) != 0)
            put_count(t, "tcmalloc_heap_bytes", bytes);
    }
    if (image.mallinfo2 != NULL) {
        heap_counts own = image.mallinfo2();
        put_count(t, "libc_arena_bytes", own.arena);
        put_count(t, "libc_mapped_bytes", own.hblkhd);
        put_count(t, "libc_used_bytes", own.uordblks);
    } else if (image.mallinfo != NULL) {
        heap_counts_int own = image.mallinfo();
        put_count(t, "libc_arena_bytes", (unsigned)own.arena);
        put_count(t, "libc_mapped_bytes", (unsigned)own.hblkhd);
        put_count(t, "libc_used_bytes", (unsigned)own.uordblks);
    }
}

/* Peak of resident memory of this image. That of wait4 counts from before the exec. */
static uint64_t peak_resident_kib(void)
{
    static char status[4096];
    const char *line;
    uint64_t kib = 0;
    ssize_t got;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    got = read(fd, status, sizeof status - 1);
    close(fd);
    if (got <= 0)
        return 0;
    status[got] = '\0';
    line = strstr(status, "VmHWM:");
    for (line = line == NULL ? "" : line + 6; *line == ' ' || *line == '\t'; line++)
        ;
    for (; *line >= '0' && *line <= '9'; line++)
        kib = kib * 10 + (uint64_t)(*line - '0');
    return kib;
}

/* ---- The record ------------------------------------------------------------------------------ */

/* Buffers are static: a handler's stack of its own may be as small as 8 KiB. */
static void save(const text *t)
{
    static text path;
    ssize_t done = 0;
    int fd;
    path.used = 0;
    put(&path, image.folder);
    put(&path, "/");
    put_number(&path, (uint64_t)image.pid);
    put(&path, "-");
    put_number(&path, image.start_ns);
    put(&path, ".json");
    path.bytes[path.used] = '\0';
    fd = open(path.bytes, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    while ((size_t)done < t->used) {
        ssize_t wrote = write(fd, t->bytes + done, t->used - (size_t)done);
        if (wrote <= 0)
            break;
        done += wrote;
    }
    close(fd);
}

/* Set while a record is written: threads and handlers that end the process at the same time do not
 * share the buffers. The first writes. Pairs with itself. */
static atomic_flag writing = ATOMIC_FLAG_INIT;

static void record(bool ended)
{
    static text t;
    if (atomic_flag_test_and_set_explicit(&writing, memory_order_acquire))
        return;
    t.used = 0;
    put(&t, "{\"pid\": ");
    put_number(&t, (uint64_t)image.pid);
    put_count(&t, "ppid", (uint64_t)getppid());
    put_count(&t, "start_ns", image.start_ns);
    put(&t, image.forked ? ", \"forked\": true" : ", \"forked\": false");
    put_path(&t, "executable", image.executable);
    put_path(&t, "malloc_object", image.malloc_object);
    put_path(&t, "free_object", image.free_object);
    put_path(&t, "calloc_object", image.calloc_object);
    put_path(&t, "realloc_object", image.realloc_object);
    put_path(&t, "libc", image.libc);
    if (image.has_new)
        put_path(&t, "new_object", image.new_object);
    if (ended) {
        put_count(&t, "peak_rss_kib", peak_resident_kib());
        put_counters(&t);
        put(&t, ", \"ended\": true");
    } else {
        put(&t, ", \"ended\": false");
    }
    put(&t, "}\n");
    save(&t);
    atomic_flag_clear_explicit(&writing, memory_order_release);
}

static void at_end(void)
{
    /* Another process number without a fork handler: a child of vfork, which shares this memory and
     * has no image of its own, or of a bare clone, whose heap may be in any state. */
    if (image.on && image.pid == getpid())
        record(true);
}

static void in_child(void)
{
    if (!image.on)
        return;
    image.pid = getpid();
    image.forked = true;
    atomic_flag_clear_explicit(&writing, memory_order_relaxed);
}

__attribute__((constructor)) static void start(void)
{
    const char *folder = secure_getenv("HAKWITNESS");
    struct timespec now;
    if (folder == NULL || folder[0] != '/' || strlen(folder) >= sizeof image.folder)
        return;
    strncpy(image.folder, folder, sizeof image.folder - 1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    image.start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    image.pid = getpid();
    if (readlink("/proc/self/exe", image.executable, sizeof image.executable - 1) < 0)
        image.executable[0] = '\0';
    look_around();
    image.on = true;
    pthread_atfork(NULL, NULL, in_child);
    at_quick_exit(at_end);
    record(false);
}

__attribute__((destructor)) static void stop(void)
{
    at_end();
}

/* ---- Ends without destructors ---------------------------------------------------------------- */

static volatile sig_atomic_t last_status;

_Noreturn static void end_now(int status)
{
    for (;;)
        syscall(SYS_exit_group, status);
}

static void on_alarm(int number)
{
    (void)number;
    end_now(last_status);
}

_Noreturn static void leave(int status)
{
    if (image.on && image.pid == getpid()) {
        struct sigaction action;
        struct itimerval patience = {{0, 0}, {0, PATIENCE_MS * 1000L}};
        sigset_t alarm_only;
        last_status = status;
        memset(&action, 0, sizeof action);
        action.sa_handler = on_alarm;
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &patience, NULL);
        sigemptyset(&alarm_only);
        sigaddset(&alarm_only, SIGALRM);
        sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
        record(true);
    }
    end_now(status);
}

EXPORT _Noreturn void _exit(int status)
{
    leave(status);
}

EXPORT _Noreturn void _Exit(int status)
{
    leave(status);
}
