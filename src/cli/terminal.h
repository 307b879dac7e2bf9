/* The terminal as a full-screen command needs it: keys one by one, a screen of its own, frames without flicker, and the terminal as
 * it was after any end of the process but SIGKILL. One at a time in a process. */
#ifndef LP_CLI_TERMINAL_H
#define LP_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

typedef enum lp_key {                  /* what is no character; those are themselves, UTF-8 byte by byte */
                      LP_KEY_NONE = 0, /* time is over, or the screen must be drawn anew */
                      LP_KEY_ENTER = '\n',
                      LP_KEY_ESCAPE = 27,
                      LP_KEY_ERASE = 127,
                      LP_KEY_UP = 256,
                      LP_KEY_DOWN,
                      LP_KEY_LEFT,
                      LP_KEY_RIGHT,
                      LP_KEY_PAGE_UP,
                      LP_KEY_PAGE_DOWN,
                      LP_KEY_HOME,
                      LP_KEY_END,
                      LP_KEY_BACK_TAB,
                      LP_KEY_OTHER, /* a key that we do not know */
                      LP_KEY_GONE   /* the terminal is: it was closed */
} lp_key;

typedef struct lp_terminal lp_terminal;

/* Descriptors are borrowed. NULL: errno. From here on signals that end the process put the terminal back first and then do
 * what they do by default, SIGTSTP and SIGCONT leave and enter the screen. */
lp_terminal *lp__terminal_open(int in, int out);
/* Puts terminal and signals back; NULL is allowed. */
void lp__terminal_close(lp_terminal *terminal);
void lp__terminal_size(const lp_terminal *terminal, unsigned *columns, unsigned *rows);
/* Shows lines, each ended by '\n', without colours that go on beyond its end, none wider than the screen. In one write, and only
 * what has changed. false: the terminal is gone. */
bool lp__terminal_draw(lp_terminal *terminal, const char *text, size_t size);
/* The next key, waiting at most `seconds`; *redraw is set when the size has changed or the process was stopped in between. */
int lp__terminal_key(lp_terminal *terminal, double seconds, bool *redraw);

#endif
