/* Variables of a thread that each event looks at: at a fixed distance from the thread pointer (the initial-exec model), which saves a
 * call of __tls_get_addr, 2 to 3 ns, an event.
 *
 * Assumes that the C library keeps room for a few bytes of libraries that are loaded late: glibc does (TLS_STATIC_SURPLUS), musl
 * refuses to load such a library, so there the variable is found by the general way. */
#ifndef LP_CORE_LOCAL_H
#define LP_CORE_LOCAL_H

#include <features.h>

#ifdef __GLIBC__
#define LP_NEAR __attribute__((visibility("hidden"), tls_model("initial-exec")))
#else
#define LP_NEAR __attribute__((visibility("hidden")))
#endif

#endif
