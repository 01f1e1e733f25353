/* callsite.h: call-sites that the program's source labels with HAK_CALLSITE(), counted exactly.
 *
 * Callers: the hak_*_cs entry points and the report. Counters are atomic; HAK_RANK_SITES is taken when
 * a site is met for the first time.
 */
#ifndef HAK_SITE_CALLSITE_H
#define HAK_SITE_CALLSITE_H

#include <hakmem/hakmem.h>

#include "base/lock.h"

extern hak_lock hak_callsite_lock;

void hak_callsite_alloc(hak_callsite *site, size_t bytes);
void hak_callsite_free(hak_callsite *site, size_t bytes);

#endif
