/* The line protocol of gpuyard's socket for LSF (docs/guide/serve-lsf.md):
 *
 *     gpuyard 1          ->        keep gpu3.site
 *     key 4f1c                     end
 *     host gpu1.site
 *     host gpu3.site
 *     end
 *
 * Whatever else is heard counts as no answer. */
#define _GNU_SOURCE
#include "ask.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST_ANSWER = 1 << 16, LONGEST_NAME = 255, MOST_HOSTS = 1 << 20 };

static int64_t silent_until_ms = INT64_MIN;

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int gpuyard_add(struct gpuyard_names *names, const char *name, size_t length)
{
    char *copy;

    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 16;
        char **grown = realloc(names->name, room * sizeof *grown);

        if (grown == NULL)
            return -1;
        names->name = grown;
        names->room = room;
    }
    copy = malloc(length + 1);
    if (copy == NULL)
        return -1;
    memcpy(copy, name, length);
    copy[length] = '\0';
    names->name[names->count++] = copy;
    return 0;
}

int gpuyard_has(const struct gpuyard_names *names, const char *name)
{
    for (size_t place = 0; place < names->count; place++)
        if (strcmp(names->name[place], name) == 0)
            return 1;
    return 0;
}

void gpuyard_clear(struct gpuyard_names *names)
{
    for (size_t place = 0; place < names->count; place++)
        free(names->name[place]);
    free(names->name);
    *names = (struct gpuyard_names){NULL, 0, 0};
}

void gpuyard_ask_again(void)
{
    silent_until_ms = INT64_MIN;
}

/* A name that cannot break a line of the protocol. */
static int is_plain(const char *name)
{
    size_t length = strlen(name);

    if (length == 0 || length > LONGEST_NAME)
        return 0;
    for (size_t place = 0; place < length; place++)
        if ((unsigned char)name[place] <= ' ' || name[place] == 0x7f)
            return 0;
    return 1;
}

static char *append(char *end, const char *word, const char *name)
{
    end = stpcpy(end, word);
    end = stpcpy(end, name);
    *end++ = '\n';
    return end;
}

/* The question as text, which the caller frees; NULL if it cannot be asked. */
static char *question(const char *key, const struct gpuyard_names *candidates, size_t *length)
{
    size_t size = strlen("gpuyard 1\nkey \nend\n") + strlen(key) + 1;
    char *text, *end;

    if (!is_plain(key) || candidates->count == 0 || candidates->count > MOST_HOSTS)
        return NULL;
    for (size_t place = 0; place < candidates->count; place++) {
        if (!is_plain(candidates->name[place]))
            return NULL;
        size += strlen("host \n") + strlen(candidates->name[place]);
    }
    text = malloc(size);
    if (text == NULL)
        return NULL;
    end = append(stpcpy(text, "gpuyard 1\n"), "key ", key);
    for (size_t place = 0; place < candidates->count; place++)
        end = append(end, "host ", candidates->name[place]);
    end = stpcpy(end, "end\n");
    *length = (size_t)(end - text);
    return text;
}

/* A connection that never blocks; -1 if there is none at once. */
static int connected(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int channel;

    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, strlen(path) + 1);
    channel = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (channel < 0)
        return -1;
    if (connect(channel, (struct sockaddr *)&address, sizeof address) != 0) {
        int full = errno == EAGAIN; /* somebody listens, but does not accept: as good as silence */

        close(channel);
        errno = full ? ETIMEDOUT : ECONNREFUSED;
        return -1;
    }
    return channel;
}

/* Wait until the channel is ready; 0, or -1 when the time is over. */
static int wait_for(int channel, short event, int64_t deadline_ms)
{
    for (;;) {
        int64_t left_ms = deadline_ms - now_ms();
        struct pollfd one = {.fd = channel, .events = event, .revents = 0};
        int ready;

        if (left_ms <= 0) {
            errno = ETIMEDOUT;
            return -1;
        }
        ready = poll(&one, 1, (int)left_ms);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return -1;
    }
}

static int say(int channel, const char *text, size_t length, int64_t deadline_ms)
{
    while (length > 0) {
        ssize_t sent = send(channel, text, length, MSG_NOSIGNAL);

        if (sent > 0) {
            text += sent;
            length -= (size_t)sent;
        } else if (sent < 0 && errno == EINTR) {
            if (now_ms() >= deadline_ms)
                return -1;
        } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (wait_for(channel, POLLOUT, deadline_ms) != 0)
                return -1;
        } else {
            return -1;
        }
    }
    return 0;
}

static int ends_here(const char *text, size_t length)
{
    return (length == 4 || (length > 4 && text[length - 5] == '\n')) && memcmp(text + length - 4, "end\n", 4) == 0;
}

/* Hear until the line `end`; the length, or -1. */
static ssize_t hear(int channel, char *text, size_t size, int64_t deadline_ms)
{
    size_t length = 0;

    while (length < size) {
        ssize_t got;

        if (wait_for(channel, POLLIN, deadline_ms) != 0)
            return -1;
        got = recv(channel, text + length, size - length, 0);
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
            continue;
        if (got <= 0) {
            errno = ECONNRESET;
            return -1;
        }
        length += (size_t)got;
        if (length >= 4 && ends_here(text, length))
            return (ssize_t)length;
    }
    errno = EMSGSIZE;
    return -1;
}

/* Read the lines before `end`; 0, or -1 if one of them is none of the protocol. */
static int understood(const char *text, size_t length, struct gpuyard_names *keep)
{
    static const char word[] = "keep ";
    const char *last = text + length - strlen("end\n");

    while (text < last) {
        const char *line_end = memchr(text, '\n', (size_t)(last - text));
        const char *name = text + strlen(word);

        if (line_end == NULL || line_end <= name || line_end - name > LONGEST_NAME)
            return -1;
        if (memcmp(text, word, strlen(word)) != 0 || memchr(name, '\0', (size_t)(line_end - name)) != NULL)
            return -1;
        if (gpuyard_add(keep, name, (size_t)(line_end - name)) != 0)
            return -1;
        text = line_end + 1;
    }
    return 0;
}

static int exchanged(int channel, const char *text, size_t length, int64_t deadline_ms, struct gpuyard_names *keep)
{
    char *answer = malloc(LARGEST_ANSWER);
    ssize_t heard;
    int result = -1;

    if (answer == NULL)
        return -1;
    if (say(channel, text, length, deadline_ms) == 0) {
        heard = hear(channel, answer, LARGEST_ANSWER, deadline_ms);
        if (heard >= 0)
            result = understood(answer, (size_t)heard, keep);
    }
    free(answer);
    return result;
}

int gpuyard_ask(const char *path, const char *key, const struct gpuyard_names *candidates, struct gpuyard_names *keep)
{
    int64_t began_ms = now_ms();
    size_t length = 0;
    char *text;
    int channel, result = -1;

    if (began_ms < silent_until_ms)
        return -1;
    text = question(key, candidates, &length);
    if (text == NULL)
        return -1;
    errno = 0;
    channel = connected(path);
    if (channel >= 0) {
        result = exchanged(channel, text, length, began_ms + GPUYARD_LIMIT_MS, keep);
        if (result != 0 && errno != ETIMEDOUT && now_ms() - began_ms >= GPUYARD_LIMIT_MS)
            errno = ETIMEDOUT;
    }
    if (result != 0) {
        if (errno == ETIMEDOUT)
            silent_until_ms = now_ms() + GPUYARD_PAUSE_MS;
        gpuyard_clear(keep);
    }
    if (channel >= 0)
        close(channel);
    free(text);
    return result;
}
