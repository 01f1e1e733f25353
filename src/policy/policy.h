/* policy.h: the policy in force, and how heaps follow it.
 *
 * A policy is immutable once published. The published one stands behind a sequence counter: readers
 * copy it whole (hak_policy_read) on slow paths, so nobody waits for a sleeping thread and nothing
 * is freed under a reader. Single values that one decision needs are read by hak_knob().
 * Lock: publishing takes HAK_RANK_POLICY; reading takes none.
 */
#ifndef HAK_POLICY_POLICY_H
#define HAK_POLICY_POLICY_H

#include <hakmem/hakmem.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "policy/knobs.h"

/* Bumped by every publication; a heap whose copy is older takes the new one at its next slow path.
 * Pairs: the release store in hak_policy_publish with the acquire load here. */
extern _Atomic uint64_t hak_policy_generation;

extern _Atomic uint64_t hak_policy_values[HAK_KNOB_COUNT];

/* One knob of the policy in force. Relaxed: a value by itself orders nothing. */
static inline uint64_t hak_knob_get(hak_knob knob)
{
    return atomic_load_explicit(&hak_policy_values[knob], memory_order_relaxed);
}

/* Reads preset, HAKMEM_* variables and the config file, publishes the result, and reports what was
 * unknown or malformed, once, on stderr. Called by the constructor, before it there are defaults.
 * Does not allocate. */
void hak_policy_init(void);

/* Prints the table of options (HAKMEM_HELP=1) or, as Markdown, docs/options.md. */
void hak_options_print(int fd, bool markdown);

#endif
