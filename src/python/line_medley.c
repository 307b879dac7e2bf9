/* How far what is taken off is from what an event costs in a program that the processor does not foresee.
 *
 * The probes (line_probe.c) are small loops: their branches are foreseen, in the interpreter and in our handlers. A program whose
 * course depends on its data pays more an event, by how much nobody can tell from outside. So once the costs are known, a
 * medley of ordinary statements, which goes another way each time by a row of random numbers, runs bare and measured. What it takes
 * too long after correction, as a share of what was taken off, is part of the stated uncertainty of all costs: of several courses the
 * worst, each as the least of some rounds, since a neighbour can only add. */
#include "python/line_probe.h"

#define COURSES 5
#define ROUNDS 3

/* measured functions are f of all[…]; main(x) is the whole */
static const char program[] = "class O:\n"
                              " def __init__(self, v):\n"
                              "  self.v = v\n"
                              "  self.l = [v]\n"
                              " def add(self, k):\n"
                              "  self.v += k\n"
                              "  return self.v * 0.5\n"
                              " def some(self):\n"
                              "  for v in self.l:\n"
                              "   if v > 2:\n"
                              "    yield v\n"
                              "def step(x):\n"
                              " return (x * 1103515245 + 12345) & 0x7fffffff\n"
                              "def best(l, k):\n"
                              " top = -1\n"
                              " for v in l:\n"
                              "  score = (v * k + 3) % 13\n"
                              "  if score > top:\n"
                              "   top = score\n"
                              "  elif v == k:\n"
                              "   top += 1\n"
                              " return top\n"
                              "def near(x):\n"
                              " return x & 3\n"
                              "def far(x):\n"
                              " return near(x) + near(x + 1)\n"
                              "def main(x):\n"
                              " o = O(1)\n"
                              " d = {}\n"
                              " for i in range(12):\n"
                              "  x = step(x)\n"
                              "  k = x >> 20 & 7\n"
                              "  o.l.append(far(k))\n"
                              "  if k < 2:\n"
                              "   o = O(o.add(k))\n"
                              "  elif k == 3:\n"
                              "   d[k] = d.get(k, 0) + i\n"
                              "  elif k & 1:\n"
                              "   o.v = best(o.l, k)\n"
                              "  elif len(o.l) > 4:\n"
                              "   o.l.pop()\n"
                              "  else:\n"
                              "   x += len(list(o.some()))\n"
                              "  while k > 4:\n"
                              "   k -= 1\n"
                              "   o.v += float(k)\n"
                              "  if o.v > 50:\n"
                              "   o.v = 0\n"
                              "all = [O.__init__, O.add, O.some, step, best, main]\n";

typedef struct medley {
    PyObject *bare, *measured; /* namespaces */
    LineEngine *engine;        /* owned */
    struct {
        double bare, measured, taken; /* the least, in ticks */
    } of[COURSES];
} medley;

static bool mark_all(const medley *m)
{
    PyObject *all = PyDict_GetItemString(m->measured, "all"); /* borrowed */
    bool good = all != NULL;

    for (Py_ssize_t i = 0; good && i < PyList_GET_SIZE(all); i++) {
        PyObject *index =
            PyObject_CallMethod((PyObject *)m->engine, "mark", "O", PyFunction_GetCode(PyList_GET_ITEM(all, i)));
        good = index != NULL;
        Py_XDECREF(index);
    }
    return good;
}

/* Ticks of one run; 0 with an exception. */
static double ticks_of(PyObject *globals, int seed)
{
    PyObject *main = PyDict_GetItemString(globals, "main"); /* borrowed */
    uint64_t start = lp_ticks();
    PyObject *result = main ? PyObject_CallFunction(main, "i", seed) : NULL;
    double ticks = (double)(lp_ticks() - start);

    Py_XDECREF(result);
    return result ? ticks : 0;
}

static double lesser(double before, double now, int round)
{
    return round == 0 || now < before ? now : before;
}

/* All courses, one after the other: each comes after another one. The first is run once more before, since to start measuring makes
 * code cold. */
static bool round_of(medley *m, PyObject *globals, int round)
{
    bool measured = globals == m->measured;

    for (int i = -1; i < COURSES; i++) {
        uint64_t own = lp_lines_own(m->engine->core);
        double ticks = ticks_of(globals, 1 + 77 * (i < 0 ? 0 : i));

        if (!(ticks > 0))
            return false;
        if (i >= 0 && measured) {
            double taken = (double)(lp_lines_own(m->engine->core) - own);
            if (!(taken > 0))
                return false;
            m->of[i].measured = lesser(m->of[i].measured, ticks, round);
            m->of[i].taken = lesser(m->of[i].taken, taken, round);
        } else if (i >= 0) {
            m->of[i].bare = lesser(m->of[i].bare, ticks, round);
        }
    }
    return true;
}

static bool both(medley *m, int round)
{
    if (!round_of(m, m->bare, round) || !lpy_probe_tell(m->engine, "start"))
        return false;
    bool good = m->engine->active && round_of(m, m->measured, round);
    return lpy_probe_tell(m->engine, "stop") && good;
}

double lpy_medley_share(const lpy_line_backend *backend, const lp_line_cost *cost)
{
    medley m = {.engine = lpy_probe_engine(backend)};
    bool good = m.engine != NULL;

    if (good) {
        lp_lines_set_cost(m.engine->core, cost);
        m.bare = lpy_probe_globals(program);
        m.measured = lpy_probe_globals(program);
        good = m.bare && m.measured && mark_all(&m);
    }
    for (int round = 0; good && round < ROUNDS; round++)
        good = both(&m, round);
    Py_XDECREF(m.measured);
    Py_XDECREF(m.bare);
    Py_XDECREF(m.engine);
    if (!good)
        return 0;
    double most = 0;
    for (int i = 0; i < COURSES; i++) {
        double share = (m.of[i].measured - m.of[i].taken - m.of[i].bare) / m.of[i].taken;
        most = share > most ? share : most;
    }
    return most;
}
