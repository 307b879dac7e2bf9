/* What a signal may come into is one static record; handlers use nothing but write, tcsetattr, sigaction, sigprocmask and raise. */
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "render/line.h"

#define ESCAPE_WAIT_NS 30000000 /* what follows an ESC later than this was typed */
#define STACK_ROOM 65536        /* for handlers: the program's own may be what overflowed */

/* Another screen, no cursor, no wrapping; and the reverse, after whatever was going on. */
static const char enter_text[] = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
static const char leave_text[] = "\x1b[?2026l\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE,
                             SIGILL, SIGSYS, SIGTRAP, SIGXCPU, SIGALRM, SIGUSR1, SIGUSR2};
#define ENDING_COUNT (sizeof ending / sizeof *ending)
static const int others[] = {SIGTSTP, SIGCONT, SIGWINCH};
#define OTHER_COUNT (sizeof others / sizeof *others)

struct lp_terminal {
    int in, out;
    struct termios before, raw;
    struct sigaction old_ending[ENDING_COUNT], old_others[OTHER_COUNT];
    stack_t old_stack;
    char *shown; /* owned: the lines on the screen */
    size_t shown_size, shown_room;
    char *work; /* owned: what is written */
    size_t work_size, work_room;
    unsigned char keys[64];
    size_t key_count;
};

static struct lp_terminal state = {.in = -1, .out = -1};
static volatile sig_atomic_t is_open, is_shown, must_redraw;
static char handler_stack[STACK_ROOM];

static bool put(const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(state.out, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) { /* somebody else has made it non-blocking */
            struct pollfd wait = {.fd = state.out, .events = POLLOUT};
            if (poll(&wait, 1, 1000) > 0)
                continue;
        }
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

static void enter(void)
{
    tcsetattr(state.in, TCSADRAIN, &state.raw);
    is_shown = 1;
    must_redraw = 1;
    put(enter_text, sizeof enter_text - 1);
}

static void leave(void)
{
    if (!is_shown)
        return;
    is_shown = 0;
    put(leave_text, sizeof leave_text - 1);
    tcsetattr(state.in, TCSADRAIN, &state.before);
}

/* Default action for this signal, now. */
static void die_of(int number)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t set;

    sigaction(number, &by_default, NULL);
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void on_end(int number)
{
    int saved = errno;

    leave();
    die_of(number);
    errno = saved;
}

static void on_other(int number);

static void catch_other(int number)
{
    struct sigaction action = {.sa_handler = on_other, .sa_flags = SA_ONSTACK};

    sigfillset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void on_other(int number)
{
    int saved = errno;

    if (number == SIGWINCH) {
        must_redraw = 1;
    } else if (number == SIGTSTP) {
        leave();
        die_of(SIGTSTP); /* stops here until SIGCONT */
        catch_other(SIGTSTP);
        enter();
    } else if (is_open) { /* after a SIGSTOP, which nobody can catch: the shell has used the screen */
        enter();
    }
    errno = saved;
}

lp_terminal *lp__terminal_open(int in, int out)
{
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};

    if (is_open) {
        errno = EBUSY;
        return NULL;
    }
    state = (struct lp_terminal){.in = in, .out = out};
    if (tcgetattr(in, &state.before) != 0)
        return NULL;
    state.raw = state.before;
    state.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN); /* ISIG stays: control-C and control-Z do what they do */
    state.raw.c_iflag &= ~(tcflag_t)(IXON | INLCR);
    state.raw.c_iflag |= ICRNL;
    state.raw.c_cc[VMIN] = 0;
    state.raw.c_cc[VTIME] = 0;
    sigaltstack(&stack, &state.old_stack);
    is_open = 1;
    for (size_t i = 0; i < ENDING_COUNT; i++) {
        struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_ONSTACK};
        sigfillset(&action.sa_mask);
        sigaction(ending[i], NULL, &state.old_ending[i]);
        if (state.old_ending[i].sa_handler != SIG_IGN) /* nohup */
            sigaction(ending[i], &action, NULL);
    }
    for (size_t i = 0; i < OTHER_COUNT; i++) {
        sigaction(others[i], NULL, &state.old_others[i]);
        if (others[i] != SIGTSTP || state.old_others[i].sa_handler != SIG_IGN) /* a shell without job control */
            catch_other(others[i]);
    }
    enter();
    return &state;
}

void lp__terminal_close(lp_terminal *terminal)
{
    if (!terminal)
        return;
    is_open = 0;
    leave();
    for (size_t i = 0; i < ENDING_COUNT; i++)
        sigaction(ending[i], &terminal->old_ending[i], NULL);
    for (size_t i = 0; i < OTHER_COUNT; i++)
        sigaction(others[i], &terminal->old_others[i], NULL);
    sigaltstack(&terminal->old_stack, NULL);
    free(terminal->shown);
    free(terminal->work);
    terminal->shown = terminal->work = NULL;
}

void lp__terminal_size(const lp_terminal *terminal, unsigned *columns, unsigned *rows)
{
    struct winsize size = {0};

    *columns = 80;
    *rows = 24;
    if (ioctl(terminal->out, TIOCGWINSZ, &size) != 0)
        return;
    if (size.ws_col > 0)
        *columns = size.ws_col;
    if (size.ws_row > 0)
        *rows = size.ws_row;
}

/* ---- drawing */

/* Without memory the frame is left out: the next one may do. */
static bool append(lp_terminal *t, const char *data, size_t size)
{
    if (t->work_room - t->work_size < size) {
        size_t room = 2 * t->work_room + size + 4096;
        char *grown = realloc(t->work, room);
        if (!grown)
            return false;
        t->work = grown;
        t->work_room = room;
    }
    memcpy(t->work + t->work_size, data, size);
    t->work_size += size;
    return true;
}

static bool append_text(lp_terminal *t, const char *text)
{
    return append(t, text, strlen(text));
}

static size_t line_size(const char *text, size_t size)
{
    const char *end = size > 0 ? memchr(text, '\n', size) : NULL;
    return end ? (size_t)(end - text) : size;
}

/* The lines that differ from those on the screen, each written whole and cleared beyond its end; not a full one, after which the
 * cursor stands on its last character still. */
static bool append_changes(lp_terminal *t, const char *text, size_t size, bool all)
{
    size_t at = 0, old = 0;
    unsigned width, height;
    char place[32];

    lp__terminal_size(t, &width, &height);

    for (unsigned row = 1; at < size || old < t->shown_size; row++) {
        size_t length = line_size(text + at, size - at), old_length = line_size(t->shown + old, t->shown_size - old);
        bool same =
            !all && old < t->shown_size && length == old_length && memcmp(text + at, t->shown + old, length) == 0;
        snprintf(place, sizeof place, "\x1b[%u;1H", row);
        const char *rest = lp_line_columns(text + at, length) < width ? "\x1b[0m\x1b[K" : "\x1b[0m";
        if (!same && !(append_text(t, place) && append(t, text + at, length) && append_text(t, rest)))
            return false;
        at += at < size ? length + 1 : 0;
        old += old < t->shown_size ? old_length + 1 : 0;
    }
    return true;
}

static void remember(lp_terminal *t, const char *text, size_t size)
{
    if (t->shown_room < size) {
        char *grown = realloc(t->shown, size);
        if (!grown) {
            t->shown_size = 0;
            must_redraw = 1;
            return;
        }
        t->shown = grown;
        t->shown_room = size;
    }
    if (size > 0)
        memcpy(t->shown, text, size);
    t->shown_size = size;
}

bool lp__terminal_draw(lp_terminal *terminal, const char *text, size_t size)
{
    bool all = must_redraw;
    sigset_t mask, before;

    must_redraw = 0;
    if (all)
        terminal->shown_size = 0;
    terminal->work_size = 0;
    /* Terminals that know it show what is between the two at once. */
    if (!append_text(terminal, "\x1b[?2026h") || !append_changes(terminal, text, size, all) ||
        !append_text(terminal, "\x1b[?2026l"))
        return true;
    remember(terminal, text, size);
    /* A signal that leaves the screen must not come into the middle of a write. */
    sigemptyset(&mask);
    for (size_t i = 0; i < OTHER_COUNT; i++)
        sigaddset(&mask, others[i]);
    sigprocmask(SIG_BLOCK, &mask, &before);
    bool ok = put(terminal->work, terminal->work_size);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/* ---- keys */

/* Waits for input, at most `ns`. -1: the terminal is gone, 0: nothing, 1: there is some. Any caught signal ends the wait. */
static int wait_for_input(const lp_terminal *t, long long ns)
{
    struct pollfd wait = {.fd = t->in, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    sigset_t mask, before;
    int ready = 0;

    /* Between the look at must_redraw and the wait no signal may be missed. */
    sigemptyset(&mask);
    sigaddset(&mask, SIGWINCH);
    sigaddset(&mask, SIGCONT);
    sigaddset(&mask, SIGTSTP);
    sigprocmask(SIG_BLOCK, &mask, &before);
    if (!must_redraw)
        ready = ppoll(&wait, 1, &limit, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (ready <= 0)
        return ready < 0 && errno != EINTR ? -1 : 0;
    return wait.revents & POLLIN ? 1 : -1;
}

static bool fill(lp_terminal *t)
{
    ssize_t n = read(t->in, t->keys + t->key_count, sizeof t->keys - t->key_count);

    if (n > 0)
        t->key_count += (size_t)n;
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

static void drop(lp_terminal *t, size_t count)
{
    t->key_count -= count;
    memmove(t->keys, t->keys + count, t->key_count);
}

/* ESC [ … letter or ~, ESC O letter. 0: not complete. */
static size_t parse_sequence(const lp_terminal *t, int *key)
{
    static const struct {
        const char *text;
        int key;
    } known[] = {{"[A", LP_KEY_UP},       {"[B", LP_KEY_DOWN},       {"[C", LP_KEY_RIGHT},   {"[D", LP_KEY_LEFT},
                 {"OA", LP_KEY_UP},       {"OB", LP_KEY_DOWN},       {"OC", LP_KEY_RIGHT},   {"OD", LP_KEY_LEFT},
                 {"[5~", LP_KEY_PAGE_UP}, {"[6~", LP_KEY_PAGE_DOWN}, {"[H", LP_KEY_HOME},    {"[F", LP_KEY_END},
                 {"OH", LP_KEY_HOME},     {"OF", LP_KEY_END},        {"[1~", LP_KEY_HOME},   {"[4~", LP_KEY_END},
                 {"[7~", LP_KEY_HOME},    {"[8~", LP_KEY_END},       {"[Z", LP_KEY_BACK_TAB}};
    size_t end = 2;

    if (t->keys[1] == '[')
        while (end < t->key_count && (t->keys[end] < 0x40 || t->keys[end] > 0x7e))
            end++;
    if (end >= t->key_count)
        return t->key_count == sizeof t->keys ? t->key_count : 0;
    *key = LP_KEY_OTHER;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].text) == end && memcmp(t->keys + 1, known[i].text, end) == 0)
            *key = known[i].key;
    return end + 1;
}

static int take_key(lp_terminal *t)
{
    int key = t->keys[0];

    if (key != LP_KEY_ESCAPE) {
        drop(t, 1);
        return key == '\r' ? LP_KEY_ENTER : key == '\b' ? LP_KEY_ERASE : key;
    }
    /* An ESC alone, or the start of what a key sends, which comes at once. */
    while (t->key_count < sizeof t->keys && wait_for_input(t, ESCAPE_WAIT_NS) > 0 && fill(t)) {
        size_t used = t->key_count > 1 && (t->keys[1] == '[' || t->keys[1] == 'O') ? parse_sequence(t, &key) : 1;
        if (used > 0)
            break;
    }
    size_t used = 1;
    if (t->key_count > 1 && (t->keys[1] == '[' || t->keys[1] == 'O')) {
        used = parse_sequence(t, &key);
        if (used == 0) {
            used = t->key_count;
            key = LP_KEY_OTHER;
        }
    }
    drop(t, used);
    return key;
}

int lp__terminal_key(lp_terminal *terminal, double seconds, bool *redraw)
{
    int key = LP_KEY_NONE;

    if (terminal->key_count == 0) {
        int ready = wait_for_input(terminal, seconds > 0.0 ? (long long)(seconds * 1e9) : 0);
        if (ready < 0 || (ready > 0 && !fill(terminal)))
            return LP_KEY_GONE;
    }
    if (terminal->key_count > 0)
        key = take_key(terminal);
    *redraw = must_redraw;
    return key;
}
