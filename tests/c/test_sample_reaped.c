/* Bytes of recorded children that their parent has waited for, on a made-up /proc. */
#include "check.h"
#include "made_tree.h"
#include "sample/reaped.h"

/* Faults of its own, and of children that it has waited for; their ticks; bytes that it wrote, and at the disk. */
static void put_process(int pid, char state, int faults, int of_children, int ticks, int wchar, int write_bytes)
{
    put(text("proc/%d/stat", pid), text("%d (p) %c 42 1 1 0 -1 0 %d %d 0 0 10 0 %d 0 20 0 1 0 %d 0 100 0\n", pid, state,
                                        faults, of_children, ticks, 700 + pid));
    put(text("proc/%d/io", pid), text("rchar: 0\nwchar: %d\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: %d\n"
                                      "cancelled_write_bytes: 0\n",
                                      wchar, write_bytes));
}

static void end(int pid)
{
    remove(text("%s/proc/%d/stat", top, pid));
}

static void row(lp_process *p, lp_reaped *reaped, lp_sample *s)
{
    unsigned budget = 10;

    lp_sample_init(s);
    REQUIRE(lp_process_sample(p, s, &budget) == LP_REASON_NONE);
    if (reaped)
        lp_reaped_take_off(reaped, root, p, s);
}

static void start(int pid, lp_process *p)
{
    REQUIRE(lp_process_open(p, root, pid, 0, false) == LP_REASON_NONE);
}

static void a_child_is_taken_off_once_it_was_waited_for(void)
{
    lp_process parent, child;
    lp_reaped reaped = {0};
    lp_sample s;

    fresh_tree();
    put_process(42, 'S', 900, 0, 0, 1000, 4096);
    put_process(50, 'S', 300, 0, 0, 5000, 8192);
    start(42, &parent);
    start(50, &child);
    row(&parent, &reaped, &s);
    row(&child, NULL, &s);
    /* a zombie: told, but not waited for, while the parent writes more than the child did and waits for somebody else */
    lp_reaped_expect(&reaped, &child);
    put_process(50, 'Z', 300, 0, 0, 5000, 8192);
    put_process(42, 'S', 900, 400, 7, 21000, 20480);
    row(&parent, &reaped, &s);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 21000);
    CHECK_EQ(reaped.off_ticks, 0);
    /* waited for: the kernel has added what the child wrote, 40 bytes of it after its last row */
    end(50);
    put_process(42, 'S', 900, 710, 17, 26040, 28672);
    row(&parent, &reaped, &s);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 21040);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_BYTES], 20480);
    CHECK_EQ(reaped.off_ticks, 10);
    CHECK_EQ(reaped.count, 0);
    /* and it stays so */
    put_process(42, 'S', 900, 710, 17, 27040, 28672);
    row(&parent, &reaped, &s);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 22040);
    lp_process_close(&parent);
    lp_process_close(&child);
    lp_reaped_free(&reaped);
}

static void one_that_nobody_waits_for_is_not(void)
{
    lp_process parent, child;
    lp_reaped reaped = {0};
    lp_sample s;

    fresh_tree();
    put_process(42, 'S', 900, 0, 0, 1000, 0);
    put_process(50, 'S', 300, 0, 0, 5000, 0);
    start(42, &parent);
    start(50, &child);
    row(&parent, &reaped, &s);
    row(&child, NULL, &s);
    lp_reaped_expect(&reaped, &child);
    end(50);
    put_process(42, 'S', 950, 0, 0, 90000, 0); /* SIGCHLD ignored: no cminflt */
    row(&parent, &reaped, &s);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 90000);
    /* and another one, with few faults: they cannot be the child's */
    put_process(42, 'S', 950, 299, 1, 190000, 0);
    row(&parent, &reaped, &s);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 190000);
    /* as many as have ended so are not kept for ever */
    for (int i = 0; i < 5000; i++)
        lp_reaped_expect(&reaped, &child);
    CHECK(reaped.count <= 1024);
    lp_process_close(&parent);
    lp_process_close(&child);
    lp_reaped_free(&reaped);
}

static void growth_explains_one_child_each(void)
{
    lp_process parent, a, b;
    lp_reaped reaped = {0};
    lp_sample s;

    fresh_tree();
    put_process(42, 'S', 900, 0, 0, 0, 0);
    put_process(50, 'S', 300, 0, 0, 5000, 0);
    put_process(51, 'S', 300, 0, 0, 6000, 0);
    start(42, &parent);
    start(50, &a);
    start(51, &b);
    row(&parent, &reaped, &s);
    row(&a, NULL, &s);
    row(&b, NULL, &s);
    lp_reaped_expect(&reaped, &a);
    lp_reaped_expect(&reaped, &b);
    end(50);
    end(51);
    /* the bytes of the second come with the row after its faults: they were added between both readings */
    put_process(42, 'S', 900, 600, 20, 5000, 0);
    row(&parent, &reaped, &s);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 0);
    CHECK_EQ(reaped.count, 1);
    put_process(42, 'S', 900, 600, 20, 11000, 0);
    row(&parent, &reaped, &s);
    CHECK_EQ(s.value[LP_COLUMN_WRITE_CHARS], 0);
    CHECK_EQ(reaped.count, 0);
    lp_process_close(&parent);
    lp_process_close(&a);
    lp_process_close(&b);
    lp_reaped_free(&reaped);
}

int main(void)
{
    RUN(a_child_is_taken_off_once_it_was_waited_for);
    RUN(one_that_nobody_waits_for_is_not);
    RUN(growth_explains_one_child_each);
    close(root);
    remove_folder(top);
    return check_done();
}
