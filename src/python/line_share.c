/* Where the line engine's segment lies, and figures of other processes from theirs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "python/convert.h"
#include "python/line.h"
#include "store/describe.h"
#include "store/lines_read.h"

/* A folder that nobody else can enter; -1 with errno. */
static int open_folder(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* Also called in a forked child, at its first event. */
bool lpy_line_open(void *user, lp_lines *lines)
{
    LineEngine *engine = user;
    lp_error error = {0};
    char name[64];
    uint32_t mark = 0;
    int saved = errno, dirfd = -1;

    if (engine->folder) {
        dirfd = open_folder(engine->folder);
        if (dirfd < 0)
            lpy_line_note(engine, "%s: %s: the figures would not outlive this process", engine->folder,
                          errno == EPERM ? "others may enter this folder" : strerror(errno));
    }
    if (syscall(SYS_getrandom, &mark, sizeof mark, 1u /* GRND_NONBLOCK */) != (long)sizeof mark)
        mark = (uint32_t)lp_ticks();
    snprintf(name, sizeof name, "%ld-%08x.lines", (long)getpid(), mark);
    lp_status status = lp_segment_create(&lines->segment, dirfd, engine->folder, name, &error);
    if (dirfd >= 0)
        close(dirfd);
    if (status == LP_OK) {
        lp_seg_header *header = lp_segment_header(&lines->segment);
        lp_namespaces ns = {0};
        if (engine->folder)
            lp_describe_namespaces(&ns);
        header->pid = getpid();
        header->pid_start = lp_describe_pid_start(getpid());
        header->time_ns = ns.time_ns;
        lines->keep = lines->segment.place == LP_PLACE_SHARED;
        if (dirfd >= 0 && !lines->keep)
            lpy_line_note(engine, "%s: the figures would not outlive this process", error.text);
    }
    errno = saved;
    return status == LP_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

static PyObject *list_of(uint32_t count, PyObject *(*item)(const lp_line_figures *f, uint32_t i),
                         const lp_line_figures *figures)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *made = item(figures, i);
        if (!made)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, made);
    }
    return list;
}

static PyObject *code_item(const lp_line_figures *f, uint32_t i)
{
    const lp_figures_code *code = &f->codes[i];
    return Py_BuildValue("(NNi)", lp_py_from_str(code->file), lp_py_from_str(code->name), code->first_line);
}

static PyObject *row_item(const lp_line_figures *f, uint32_t i)
{
    const lp_figures_row *row = &f->rows[i];
    return Py_BuildValue("(IiKKKKKI)", row->code, row->line, (unsigned long long)row->hits,
                         (unsigned long long)row->visits, (unsigned long long)row->time_ns,
                         (unsigned long long)row->self_ns, (unsigned long long)row->awaited_ns, row->thread);
}

static PyObject *call_item(const lp_line_figures *f, uint32_t i)
{
    const lp_figures_call *call = &f->calls[i];
    return Py_BuildValue("(IIKKKKK)", call->code, call->thread, (unsigned long long)call->calls,
                         (unsigned long long)call->time_ns, (unsigned long long)call->self_ns,
                         (unsigned long long)call->awaited_ns, (unsigned long long)call->suspended);
}

static PyObject *open_item(const lp_line_figures *f, uint32_t i)
{
    const lp_figures_open *open = &f->open[i];
    return Py_BuildValue("(IIiK)", open->thread, open->code, open->line, (unsigned long long)open->since_ns);
}

static PyObject *thread_item(const lp_line_figures *f, uint32_t i)
{
    return Py_BuildValue("(IN)", i, lp_py_from_str(f->threads[i].name));
}

PyObject *lpy_load_lines(PyObject *module, PyObject *path)
{
    PyObject *bytes = NULL, *result = NULL;
    lp_line_figures *figures = NULL;
    lp_error error = {0};
    lp_status status;

    (void)module;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    int fd = open(PyBytes_AsString(bytes), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
        Py_DECREF(bytes);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = lp_line_figures_read(fd, PyBytes_AsString(bytes), &figures, &error);
    Py_END_ALLOW_THREADS close(fd);
    Py_DECREF(bytes);
    if (status != LP_OK)
        return lp_py_raise(status, &error);
    result = Py_BuildValue(
        "{s:L,s:K,s:N,s:N,s:N,s:N,s:N,s:N,s:N}", "pid", (long long)figures->pid, "started_ns",
        (unsigned long long)figures->started_ns, "living", PyBool_FromLong(figures->living), "closed",
        PyBool_FromLong(figures->closed), "codes", list_of(figures->code_count, code_item, figures), "lines",
        list_of(figures->row_count, row_item, figures), "functions", list_of(figures->call_count, call_item, figures),
        "threads", list_of(figures->thread_count, thread_item, figures), "open",
        list_of(figures->open_count, open_item, figures));
    lp_line_figures_free(figures);
    return result;
}
