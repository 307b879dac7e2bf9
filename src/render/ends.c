/* How a process ended, and how long ago something was, in words. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include "render/units.h"

/* Numbers differ between machines; those of a snapshot are of Linux on x86-64 and aarch64, which agree. */
static const char *const signal_names[] = {
    [SIGHUP] = "SIGHUP",   [SIGINT] = "SIGINT",   [SIGQUIT] = "SIGQUIT", [SIGILL] = "SIGILL",
    [SIGTRAP] = "SIGTRAP", [SIGABRT] = "SIGABRT", [SIGBUS] = "SIGBUS",   [SIGFPE] = "SIGFPE",
    [SIGKILL] = "SIGKILL", [SIGUSR1] = "SIGUSR1", [SIGSEGV] = "SIGSEGV", [SIGUSR2] = "SIGUSR2",
    [SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM", [SIGTERM] = "SIGTERM", [SIGXCPU] = "SIGXCPU",
    [SIGXFSZ] = "SIGXFSZ", [SIGPROF] = "SIGPROF", [SIGSYS] = "SIGSYS",   [SIGVTALRM] = "SIGVTALRM",
    [SIGIO] = "SIGIO",     [SIGPWR] = "SIGPWR",
};

#define SECOND UINT64_C(1000000000)
#define DAY (86400 * SECOND)

char *lp_unit_age(lp_unit out, uint64_t now, uint64_t then)
{
    uint64_t age = now > then ? now - then : 0;

    if (age >= 2 * DAY)
        snprintf(out, LP_UNIT_SIZE, "%" PRIu64 " days", age / DAY);
    else if (age < 60 * SECOND)
        snprintf(out, LP_UNIT_SIZE, "%" PRIu64 "s", age / SECOND);
    else
        lp_unit_ns(out, (double)(age - age % SECOND));
    return out;
}

char *lp_unit_end(lp_unit out, lp_end end)
{
    if (end.replaced) {
        snprintf(out, LP_UNIT_SIZE, "exec of another program");
    } else if (end.code == LP_UNKNOWN_I64) {
        out[0] = '\0';
    } else if (end.code >= 0) {
        snprintf(out, LP_UNIT_SIZE, "exit code %" PRId64, end.code);
    } else {
        uint64_t number = (uint64_t)0 - (uint64_t)end.code;
        const char *core = end.core_dumped ? ", core dumped" : "";
        if (number < sizeof signal_names / sizeof *signal_names && signal_names[number])
            snprintf(out, LP_UNIT_SIZE, "%s%s", signal_names[number], core);
        else
            snprintf(out, LP_UNIT_SIZE, "signal %" PRIu64 "%s", number, core);
    }
    return out;
}
