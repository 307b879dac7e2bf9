#include "collector/keeper.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collector/reset.h"

#ifndef __WALL
#define __WALL 0x40000000
#endif

bool lp__keeper_is_needed(void)
{
    int subreaper = 0;
    return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &subreaper) == 0 && subreaper);
}

pid_t lp__keeper_fork(void)
{
    return (pid_t)syscall(SYS_clone, 0ul, 0ul, 0ul, 0ul, 0ul);
}

/* From the first munmap on there is no libc any more: no errno, no stack protector's word, no linkage table. */
#if defined(__x86_64__)
#define BARE 1
#define SPACE_TOP 0x7ffffffff000ull
__attribute__((always_inline)) static inline long bare(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
#define BARE 1
#define SPACE_TOP 0x7fffffffffull /* 39 bits: the smallest address space; what lies above stays */
__attribute__((always_inline)) static inline long bare(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#endif

#ifdef BARE
#define PAGE 65536ull /* the largest page of either machine */

/* glibc has registered this thread's rseq area; the kernel writes to it at any preemption and kills a process where it is not
 * mapped. false: the memory has to stay. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

static bool forget_rseq(void)
{
#ifdef SYS_rseq
    const uint32_t signature =
#if defined(__x86_64__)
        0x53053053;
#else
        0xd428bc00;
#endif
    if (!&__rseq_offset || !&__rseq_size || __rseq_size == 0)
        return true; /* nobody registers it behind our back: musl and older glibc do not */
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    for (unsigned size = 32; size <= 256;
         size += 32) /* it must be the one of the registration, which libc does not tell */
        if (syscall(SYS_rseq, area, size, 1, signature) == 0)
            return true;
    return false;
#else
    return true;
#endif
}

__attribute__((noinline, section(".text.lp_keeper"), no_sanitize("address", "undefined"))) _Noreturn static void
wait_alone(pid_t child)
{
    /* This function is shorter than a page; it and the stack that it runs on may lie across a boundary. */
    uint64_t code = (uint64_t)(uintptr_t)&wait_alone & ~(PAGE - 1),
             stack = (uint64_t)(uintptr_t)__builtin_frame_address(0) & ~(PAGE - 1);
    uint64_t low = code < stack ? code : stack, high = code < stack ? stack : code;
    uint64_t first_end = low - PAGE, second = low + 2 * PAGE, second_end = high - PAGE, third = high + 2 * PAGE;

    bare(SYS_munmap, 0, (long)first_end, 0, 0);
    if (second_end > second)
        bare(SYS_munmap, (long)second, (long)(second_end - second), 0, 0);
    if (third < SPACE_TOP)
        bare(SYS_munmap, (long)third, (long)(SPACE_TOP - third), 0, 0);
    for (;;) {
        long got = bare(SYS_wait4, child, 0, __WALL, 0);
        if (got != -4) /* EINTR */
            break;
    }
    for (;;)
        bare(SYS_exit_group, 0, 0, 0, 0);
}
#endif

_Noreturn void lp__keeper_wait(pid_t child)
{
    /* No parent-death signal: it would come at the end of the thread that started us, and the collector, which ends soon after
     * the run, would be left to the program after all. */
    lp__close_from(0);
    prctl(PR_SET_NAME, "lineprofiler-kp");
#ifdef BARE
    if (forget_rseq())
        wait_alone(child);
#endif
    while (waitpid(child, NULL, __WALL) < 0 && kill(child, 0) == 0) {
    }
    _exit(0);
}
