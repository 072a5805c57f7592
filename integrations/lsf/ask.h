/* Asking a local gpuyard which hosts a job may have, within a limit of time that always holds. */
#ifndef GPUYARD_ASK_H
#define GPUYARD_ASK_H

#include <stddef.h>

enum { GPUYARD_LIMIT_MS = 50 };
/* For connecting, asking and hearing together. */

enum { GPUYARD_PAUSE_MS = 5000 };
/* After an answer that did not come in time nobody is asked for so long: a queue of a thousand jobs must not
 * cost a thousand limits. */

struct gpuyard_names {
    char **name;
    size_t count;
    size_t room;
};

/* Add a copy of a name; 0, or -1 without memory. */
int gpuyard_add(struct gpuyard_names *names, const char *name, size_t length);
int gpuyard_has(const struct gpuyard_names *names, const char *name);
void gpuyard_clear(struct gpuyard_names *names);

/* Ask over the socket at `path` for the job of `key`, which may have `candidates`. The hosts to keep are added
 * to `keep`: none if there is no answer, or no opinion. Returns 0, or -1 if there was no answer. */
int gpuyard_ask(const char *path, const char *key, const struct gpuyard_names *candidates, struct gpuyard_names *keep);

/* Forget that an answer did not come. */
void gpuyard_ask_again(void);

#endif
