/* larson.c: the server of Larson and Krishnan, "Memory Allocation for Long-Running Server
 * Applications" (ISMM 1998), with its usual parameters. Each thread replaces random blocks in an
 * array of its own, `rounds` times as often as the array has blocks; then the array passes to
 * another thread, which so begins by freeing blocks that it did not allocate.
 *   burst  the other thread is a new one, and the one before it ends: a thread per connection
 *   loop   threads live on and swap their array for one lying about: a pool of workers
 * The figure is work per second over a given time. With --turns the work is given instead, so that
 * two runs ask for the same. */
#include "lab.h"

#include <semaphore.h>
#include <stdatomic.h>

static lab_option options[] = {
    {.name = "chunks",
     .letter = 'c',
     .standard = 1000,
     .least = 1,
     .most = 10000000,
     .meaning = "blocks that a thread holds"},
    {.name = "rounds",
     .letter = 'r',
     .standard = 5,
     .least = 1,
     .most = 1000000,
     .meaning = "times each is replaced before the array passes on"},
    {.name = "least",
     .letter = 'm',
     .standard = 8,
     .least = 8,
     .most = 1 << 20,
     .meaning = "smallest block, in bytes"},
    {.name = "most",
     .letter = 'M',
     .standard = 1024,
     .least = 8,
     .most = 1 << 20,
     .meaning = "largest block, in bytes"},
    {.name = "turns",
     .standard = 0,
     .least = 0,
     .most = 1000000,
     .meaning = "how often each array passes on in a repeat; 0: for as long as --seconds says"},
    {0},
};
enum { CHUNKS, ROUNDS, LEAST, MOST, TURNS };
static const char *const params[] = {"most=128", "most=1024", NULL};

/* What goes on from thread to thread: an array in burst, a thread's own state in loop. */
typedef struct lane {
    _Alignas(128) lab_set *set;
    uint64_t random;
    lab_done done;
} lane;

static lane lanes[LAB_MAX_THREADS];
static lab_set sets[2 * LAB_MAX_THREADS];
static size_t sets_count;
static size_t least, span;
static uint64_t end_ns;

static const char *problem(void)
{
    if (options[LEAST].value > options[MOST].value)
        return "--least is more than --most";
    return NULL;
}

static size_t size_of(uint64_t x)
{
    return micro_size(x, least, span);
}

/* Littering comes before the set-up. */
static size_t age_size(uint64_t x)
{
    return micro_size(x, (size_t)options[LEAST].value,
                      (size_t)(options[MOST].value - options[LEAST].value + 1));
}

static size_t holds(void)
{
    return (size_t)(lab_threads * options[CHUNKS].value *
                    (options[LEAST].value + options[MOST].value) / 2);
}

static void prepare(size_t count)
{
    size_t i;
    least = (size_t)options[LEAST].value;
    span = (size_t)(options[MOST].value - options[LEAST].value + 1);
    sets_count = count;
    for (i = 0; i < count; i++) {
        lab_set_init(&sets[i], (size_t)options[CHUNKS].value, 500 + i);
        lab_set_fill(&sets[i], size_of);
    }
    for (i = 0; i < (size_t)lab_threads; i++) {
        lanes[i].set = &sets[i];
        lanes[i].random = micro_start(700 + i);
    }
}

static void turn(lane *mine)
{
    size_t ops = (size_t)(options[CHUNKS].value * options[ROUNDS].value);
    lab_done did = lab_set_replace(mine->set, &mine->random, ops, size_of, false);
    mine->done.ops += did.ops;
    mine->done.asked += did.asked;
    mine->done.ns++; /* turns, until the repeat is over */
}

static bool is_over(const lane *mine)
{
    if (options[TURNS].value > 0)
        return mine->done.ns >= (uint64_t)options[TURNS].value;
    return micro_now_ns() >= end_ns;
}

static void begin(void)
{
    int i;
    for (i = 0; i < lab_threads; i++)
        lanes[i].done = (lab_done){0, 0, 0};
    /* The repeats share the time. */
    end_ns = micro_now_ns() + (uint64_t)(lab_seconds / lab_repeats * 1e9);
}

static void check(void)
{
    size_t i;
    for (i = 0; i < sets_count; i++)
        lab_check_blocks(sets[i].blocks, sets[i].count, least, least + span - 1);
}

static void after(void)
{
    size_t i;
    lab_live_bytes = 0;
    for (i = 0; i < sets_count; i++)
        lab_live_bytes += (int64_t)lab_set_bytes(&sets[i]);
}

/* ---- burst ----------------------------------------------------------------------------------- */

static sem_t lanes_over;

static void *burst_body(void *argument)
{
    lane *mine = argument;
    pthread_t successor;
    turn(mine);
    if (is_over(mine))
        sem_post(&lanes_over);
    else
        lab_thread_start(&successor, true, burst_body, mine);
    return NULL;
}

static void burst_setup(void)
{
    sem_init(&lanes_over, 0, 0);
    prepare((size_t)lab_threads);
}

static lab_done burst_run(void)
{
    lab_done done = {micro_now_ns(), 0, 0};
    int i;
    begin();
    for (i = 0; i < lab_threads; i++) {
        pthread_t first;
        lab_thread_start(&first, true, burst_body, &lanes[i]);
    }
    for (i = 0; i < lab_threads; i++)
        while (sem_wait(&lanes_over) != 0)
            ;
    done.ns = micro_now_ns() - done.ns;
    for (i = 0; i < lab_threads; i++) {
        done.ops += lanes[i].done.ops;
        done.asked += lanes[i].done.asked;
    }
    return done;
}

/* ---- loop ------------------------------------------------------------------------------------ */

/* Arrays that lie about. */
static _Atomic(lab_set *) lying[LAB_MAX_THREADS];

static lab_done loop_work(int thread)
{
    lane *mine = &lanes[thread];
    do {
        turn(mine);
        /* Both sides of a hand-over are this exchange: its release publishes the blocks, its
         * acquire takes those of the thread that left the array there. */
        mine->set = atomic_exchange_explicit(&lying[micro_index(mine->random, (size_t)lab_threads)],
                                             mine->set, memory_order_acq_rel);
    } while (!is_over(mine));
    return mine->done;
}

static void loop_setup(void)
{
    int i;
    prepare(2 * (size_t)lab_threads);
    for (i = 0; i < lab_threads; i++)
        atomic_store_explicit(&lying[i], &sets[lab_threads + i], memory_order_relaxed);
    lab_team_start(loop_work);
}

static lab_done loop_run(void)
{
    begin();
    return lab_team_run();
}

const lab_workload lab_larson_burst = {
    .name = "larson-burst",
    .suite = "threads",
    .about = "A server with a thread per connection (Larson and Krishnan): each frees the blocks "
             "of one that has ended.",
    .flags = LAB_THREADED | LAB_LASTING,
    .repeats = 5,
    .seconds = 1,
    .options = options,
    .params = params,
    .problem = problem,
    .size = age_size,
    .holds = holds,
    .setup = burst_setup,
    .run = burst_run,
    .after = after,
    .check = check,
};

const lab_workload lab_larson_loop = {
    .name = "larson-loop",
    .suite = "threads",
    .about = "A server with a pool of workers (Larson and Krishnan): they swap what they hold and "
             "free each other's blocks.",
    .flags = LAB_THREADED | LAB_LASTING,
    .repeats = 5,
    .seconds = 1,
    .options = options,
    .params = params,
    .problem = problem,
    .size = age_size,
    .holds = holds,
    .setup = loop_setup,
    .run = loop_run,
    .after = after,
    .check = check,
    .finish = lab_team_stop,
};
