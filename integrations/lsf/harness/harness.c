/* Calls the plugin as mbschd would, with candidates of its own, and prints what is left of them.
 *
 *     harness PLUGIN CALLS HOSTS MESSAGE
 *
 * One JSON object: the candidates that the last call left, the smallest and largest number that any call left,
 * and how long calls took, in microseconds. */
#define _GNU_SOURCE
#include <lssched.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PER_GROUP = 8, NAME_SIZE = 64 };

static RsrcReqHandlerType *handler;
static void *attached;
static char *messages[2];
static int removed_reasons;

struct list {
    struct candHostGroup *group;
    int count;
};

static struct list *walked;
static int walked_place;

int extsched_resreq_registerhandler(int id, RsrcReqHandlerType *given)
{
    if (id < 100 || id > 199)
        return -1;
    handler = given;
    return 0;
}

void extsched_resreq_setobject(INT_RsrcReq *resreq, int id, char *key, void *data)
{
    (void)resreq;
    (void)id;
    if (key != NULL)
        attached = data;
}

char **extsched_resreq_getextresreq(INT_RsrcReq *resreq, int *count)
{
    (void)resreq;
    *count = messages[0] == NULL ? 0 : 1;
    return messages[0] == NULL ? NULL : messages;
}

struct candHostGroup *extsched_cand_getnextgroup(INT_CandGroupList *groups)
{
    if (groups != NULL) {
        walked = groups;
        walked_place = 0;
    }
    return walked_place < walked->count ? &walked->group[walked_place++] : NULL;
}

void extsched_cand_removehost(struct candHostGroup *group, int index)
{
    size_t after = (size_t)(group->numOfMembers - index - 1);

    memmove(&group->candHost[index], &group->candHost[index + 1], after * sizeof *group->candHost);
    group->numOfMembers--;
}

int extsched_reason_set(INT_Reason *reason, struct candHost *host, int id)
{
    (void)reason;
    (void)host;
    removed_reasons += id > 20000 && id <= 25000;
    return 0;
}

/* As LSF's: what it returns lasts until the next call. */
struct hostResources *extsched_host_resources(INT_Host *host)
{
    static struct hostResources *last;

    if (last != NULL) {
        free(last->hostName);
        free(last);
    }
    last = NULL;
    if (host == NULL)
        return NULL;
    last = calloc(1, sizeof *last);
    if (last != NULL)
        last->hostName = strdup(host);
    return last;
}

static struct list candidates(int hosts, char (*names)[NAME_SIZE])
{
    struct list made = {NULL, (hosts + PER_GROUP - 1) / PER_GROUP};

    made.group = calloc((size_t)made.count, sizeof *made.group);
    for (int place = 0; place < hosts; place++) {
        struct candHostGroup *group = &made.group[place / PER_GROUP];

        if (group->candHost == NULL)
            group->candHost = calloc(PER_GROUP, sizeof *group->candHost);
        group->candHost[group->numOfMembers++] = (struct candHost){place, names[place]};
        group->maxOfMembers = group->numOfMembers;
    }
    return made;
}

static int left_in(const struct list *list)
{
    int left = 0;

    for (int place = 0; place < list->count; place++)
        left += list->group[place].numOfMembers;
    return left;
}

static void show(const struct list *list)
{
    const char *between = "";

    for (int place = 0; place < list->count; place++)
        for (int member = 0; member < list->group[place].numOfMembers; member++) {
            printf("%s\"%s\"", between, (char *)list->group[place].candHost[member].hostPtr);
            between = ", ";
        }
}

static void forget(struct list *list)
{
    for (int place = 0; place < list->count; place++)
        free(list->group[place].candHost);
    free(list->group);
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

typedef int (*entry_fn)(void *);

static entry_fn entry(void *plugin, const char *name)
{
    entry_fn found;

    *(void **)&found = dlsym(plugin, name);
    if (found == NULL) {
        fprintf(stderr, "no %s in the plugin\n", name);
        exit(2);
    }
    return found;
}

int main(int argc, char **argv)
{
    static const char *phases[] = {"sched_pre_proc", "sched_match_limit", "sched_order_alloc", "sched_post_proc"};
    void *plugin = argc == 5 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int calls = argc == 5 ? atoi(argv[2]) : 0, hosts = argc == 5 ? atoi(argv[3]) : 0;
    int least = hosts, most = 0;
    char(*names)[NAME_SIZE];
    double *took_us;

    if (plugin == NULL || calls < 1 || hosts < 1) {
        fprintf(stderr, "harness PLUGIN CALLS HOSTS MESSAGE: %s\n", plugin == NULL ? dlerror() : "bad number");
        return 2;
    }
    messages[0] = argv[4][0] == '\0' ? NULL : argv[4];
    names = calloc((size_t)hosts, sizeof *names);
    took_us = calloc((size_t)calls, sizeof *took_us);
    for (int place = 0; place < hosts; place++)
        snprintf(names[place], NAME_SIZE, "gpu%d.site", place + 1);
    if (entry(plugin, "sched_version")(NULL) != 0 || entry(plugin, "sched_init")(NULL) != 0 || handler == NULL)
        return 1;
    for (int call = 0; call < calls; call++) {
        struct list list = candidates(hosts, names);
        double began_us;
        int left, resreq = 0, reason = 0;

        attached = NULL;
        if (handler->newFn(&resreq) != 0)
            return 1;
        entry(plugin, phases[0])(NULL);
        began_us = now_us();
        if (attached != NULL && handler->matchFn(attached, &list, &reason) != 0)
            return 1;
        took_us[call] = now_us() - began_us;
        for (int phase = 1; phase < 4; phase++)
            entry(plugin, phases[phase])(NULL);
        left = left_in(&list);
        least = left < least ? left : least;
        most = left > most ? left : most;
        if (call == calls - 1) {
            printf("{\"left\": [");
            show(&list);
        }
        if (attached != NULL)
            handler->freeFn(attached);
        forget(&list);
    }
    entry(plugin, "sched_finalize")(NULL);
    qsort(took_us, (size_t)calls, sizeof *took_us, by_size);
    printf("], \"least\": %d, \"most\": %d, \"reasons\": %d, \"p50_us\": %.0f, \"p99_us\": %.0f, \"max_us\": %.0f}\n",
           least, most, removed_reasons, took_us[calls / 2], took_us[(int)(calls * 0.99)], took_us[calls - 1]);
    extsched_host_resources(NULL);
    free(handler);
    free(names);
    free(took_us);
    dlclose(plugin);
    return 0;
}
