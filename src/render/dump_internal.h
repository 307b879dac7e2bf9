/* What the dumps of workers and of samples share. */
#ifndef LP_RENDER_DUMP_INTERNAL_H
#define LP_RENDER_DUMP_INTERNAL_H

#include "render/sink.h"
#include "store/model.h"

void lp__dump_str(lp_sink *sink, const char *key, lp_str value);
void lp__dump_identity(lp_sink *sink, const lp_identity *id);

#endif
