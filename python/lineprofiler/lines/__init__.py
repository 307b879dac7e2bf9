"""The line profiler. Its public names are those of ``lineprofiler``; the modules here are private.

`profiler` has the class, `model` the figures, `source` the text, `project` the choice of functions, `tables` and
`listing` the printed forms, `html` the page, `lprof` the files, `compat` the types of line_profiler, `run` and `hook`
the command that runs programs, `notebook` the magics.
"""
