/* An external scheduler plugin of LSF: in the match phase it asks a local gpuyard for the hosts of a job, and
 * removes the other candidates. Without an answer within 50 ms, or with one that names no candidate, LSF's own
 * choice stands. It takes part in jobs that were submitted with bsub -ext "GPUYARD[key]" only. */
#include <lssched.h>

#include <stdlib.h>
#include <string.h>

#include "ask.h"

#ifndef GPUYARD_SOCKET
#define GPUYARD_SOCKET "/var/lib/gpuyard/lsf.socket"
#endif

enum { HANDLER_ID = 147, NOT_CHOSEN = 20147, LONGEST_KEY = 64 };
/* Of the ranges that LSF leaves to plugins: handlers 100 to 199, pending reasons 20001 to 25000. */

static const char OPENING[] = "GPUYARD[";

struct request {
    char key[LONGEST_KEY + 1];
};

static const char *socket_path(void)
{
    const char *chosen = getenv("GPUYARD_SOCKET");

    return chosen != NULL && chosen[0] != '\0' ? chosen : GPUYARD_SOCKET;
}

/* The key of one of the requests between semicolons; its length, or 0 if it is none for us. */
static size_t key_in(const char *message, const char **key)
{
    while (*message != '\0') {
        size_t length = strcspn(message, ";");
        size_t lead = strspn(message, " \t");

        if (length > lead + strlen(OPENING) && message[length - 1] == ']' &&
            strncmp(message + lead, OPENING, strlen(OPENING)) == 0) {
            *key = message + lead + strlen(OPENING);
            return length - lead - strlen(OPENING) - 1;
        }
        message += length;
        message += *message == ';';
    }
    return 0;
}

static int is_key(const char *key, size_t length)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

    return length > 0 && length <= LONGEST_KEY && strspn(key, allowed) >= length;
}

/* A job of its own kind: the key makes it nobody's peer, so that its hosts may differ from those of others. */
static int request_new(INT_RsrcReq *resreq)
{
    int count = 0;
    char **messages = resreq == NULL ? NULL : extsched_resreq_getextresreq(resreq, &count);

    for (int place = 0; messages != NULL && place < count; place++) {
        const char *key = NULL;
        size_t length = messages[place] == NULL ? 0 : key_in(messages[place], &key);
        struct request *made;

        if (!is_key(key, length))
            continue;
        made = calloc(1, sizeof *made);
        if (made == NULL)
            return -1;
        memcpy(made->key, key, length);
        extsched_resreq_setobject(resreq, HANDLER_ID, made->key, made);
        return 0;
    }
    return 0;
}

static void request_free(void *data)
{
    free(data);
}

/* Its name, which lasts until the next host is asked for; NULL if it has none. */
static const char *name_of(struct candHost *host)
{
    struct hostResources *found = host->hostPtr == NULL ? NULL : extsched_host_resources(host->hostPtr);

    return found == NULL ? NULL : found->hostName;
}

static int listed(INT_CandGroupList *groups, struct gpuyard_names *names)
{
    for (struct candHostGroup *group = extsched_cand_getnextgroup(groups); group != NULL;
         group = extsched_cand_getnextgroup(NULL)) {
        for (int place = 0; place < group->numOfMembers; place++) {
            const char *name = name_of(&group->candHost[place]);

            if (name == NULL || gpuyard_add(names, name, strlen(name)) != 0)
                return -1;
        }
    }
    return 0;
}

static int any_is_kept(const struct gpuyard_names *candidates, const struct gpuyard_names *keep)
{
    for (size_t place = 0; place < keep->count; place++)
        if (!gpuyard_has(candidates, keep->name[place]))
            return 0; /* part of a gang is nothing: then LSF chooses all of it */
    return keep->count > 0;
}

static void remove_others(INT_CandGroupList *groups, const struct gpuyard_names *keep, INT_Reason *reason)
{
    for (struct candHostGroup *group = extsched_cand_getnextgroup(groups); group != NULL;
         group = extsched_cand_getnextgroup(NULL)) {
        int place = 0;

        while (place < group->numOfMembers) {
            struct candHost *host = &group->candHost[place];
            const char *name = name_of(host);

            if (name == NULL || gpuyard_has(keep, name)) {
                place++;
                continue;
            }
            if (reason != NULL)
                extsched_reason_set(reason, host, NOT_CHOSEN);
            extsched_cand_removehost(group, place); /* the next one takes its place */
        }
    }
}

static int request_match(void *data, INT_CandGroupList *groups, INT_Reason *reason)
{
    const struct request *request = data;
    struct gpuyard_names candidates = {NULL, 0, 0}, keep = {NULL, 0, 0};

    if (request == NULL || groups == NULL)
        return 0;
    if (listed(groups, &candidates) == 0 && gpuyard_ask(socket_path(), request->key, &candidates, &keep) == 0 &&
        any_is_kept(&candidates, &keep))
        remove_others(groups, &keep, reason);
    gpuyard_clear(&candidates);
    gpuyard_clear(&keep);
    return 0;
}

int sched_version(void *unused)
{
    (void)unused;
    return 0;
}

int sched_init(void *unused)
{
    /* LSF keeps it as long as it runs, and wants it allocated. */
    RsrcReqHandlerType *handler = calloc(1, sizeof *handler);

    (void)unused;
    if (handler == NULL)
        return -1;
    handler->newFn = request_new;
    handler->freeFn = request_free;
    handler->matchFn = request_match;
    return extsched_resreq_registerhandler(HANDLER_ID, handler);
}

int sched_pre_proc(void *unused)
{
    (void)unused;
    return 0;
}

int sched_match_limit(void *unused)
{
    (void)unused;
    return 0;
}

int sched_order_alloc(void *unused)
{
    (void)unused;
    return 0;
}

int sched_post_proc(void *unused)
{
    (void)unused;
    return 0;
}

int sched_finalize(void *unused)
{
    (void)unused;
    return 0;
}
