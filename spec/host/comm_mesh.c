/* Leaders that connect to each other while strangers call. */
#include "comm/net/mesh.h"

#include <pthread.h>
#include <stdlib.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/trace/time.h"
#include "comm/store/store_protocol.h"
#include "test.h"

enum { SILENT = 40 };
static const int64_t second_ns = 1000000000;

struct scene {
    struct ah_store_server *server;
    struct ah_hosts hosts[2];
    pthread_t thread;
    int status, fd[AH_HOSTS_MAX]; /* of host 0 */
    int port;                     /* at which it listens */
};

static void *open_first(void *context)
{
    struct scene *scene = context;
    scene->status = ah_mesh_open(&scene->hosts[0], "test", 20 * second_ns, scene->fd);
    return NULL;
}

/* Host 0 waits for host 1. */
static bool open_scene(struct scene *scene)
{
    struct ah_store_options place = {.secret = "a secret", .secret_bytes = 8, .generation = 1, .job = "job"};
    struct ah_store *store = NULL;
    char *value = NULL;
    size_t bytes;
    *scene = (struct scene){.status = 1};
    CHECK_OK(ah_store_serve(&scene->server, &place));
    place.port = ah_store_port(scene->server);
    for (int h = 0; h < 2; h++)
        scene->hosts[h] = (struct ah_hosts){.count = 2, .mine = h, .first = {0, 1, 2}, .name = {"here", "there"},
                                            .store = place};
    if (pthread_create(&scene->thread, NULL, open_first, scene))
        return false;
    CHECK_OK(ah_store_connect(&store, &place, 20 * second_ns));
    CHECK_OK(ah_store_get(store, "mesh/1/test/0", &value, &bytes, 20 * second_ns));
    const char *blank = value ? strchr(value, ' ') : NULL;
    scene->port = blank ? atoi(blank) : 0;
    free(value);
    ah_store_close(store);
    return scene->port > 0;
}

static int mesh_dial(const struct scene *scene)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)scene->port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&at, sizeof at));
    return fd;
}

static void close_scene(struct scene *scene)
{
    ah_mesh_close(scene->fd);
    ah_store_end(scene->server);
}

AH_TEST(callers_that_send_nothing_delay_no_host)
{
    struct scene scene;
    int silent[SILENT], fd[AH_HOSTS_MAX];
    REQUIRE(open_scene(&scene));
    for (int i = 0; i < SILENT; i++)
        silent[i] = mesh_dial(&scene);
    int64_t begin = ah_now_ns();
    CHECK_OK(ah_mesh_open(&scene.hosts[1], "test", 20 * second_ns, fd));
    pthread_join(scene.thread, NULL);
    CHECK(scene.status == 0 && scene.fd[1] >= 0 && fd[0] >= 0);
    CHECK(ah_now_ns() - begin < 4 * second_ns); /* one caller that does not answer has five */
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    ah_mesh_close(fd);
    close_scene(&scene);
}

struct greeting {
    uint64_t magic;
    unsigned char nonce[AH_SHA256_BYTES];
};
struct reply {
    uint64_t magic, generation;
    int64_t host;
    unsigned char nonce[AH_SHA256_BYTES], proof[AH_SHA256_BYTES];
};

static struct reply reply_of(const struct scene *scene, const struct greeting *greeting, int64_t host, const char *job)
{
    struct reply reply = {.magic = greeting->magic, .generation = 1, .host = host};
    struct ah_store_options place = scene->hosts[1].store;
    place.job = job;
    ah_store_prove(reply.proof, &place, "mesh test 1 to 0 calls", greeting->nonce, reply.nonce);
    return reply;
}

/* Is a caller that replies so refused? */
static bool is_refused(const struct scene *scene, int64_t host, const char *job, size_t bytes)
{
    struct greeting greeting;
    char byte;
    int fd = mesh_dial(scene);
    CHECK(recv(fd, &greeting, sizeof greeting, MSG_WAITALL) == (ssize_t)sizeof greeting);
    struct reply reply = reply_of(scene, &greeting, host, job);
    CHECK(send(fd, &reply, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    shutdown(fd, SHUT_WR);
    bool refused = recv(fd, &byte, 1, 0) <= 0;
    close(fd);
    return refused;
}

AH_TEST(a_caller_is_accepted_as_a_host_when_its_proof_is_of_this_job_however_its_bytes_arrive)
{
    struct scene scene;
    struct greeting greeting;
    unsigned char proof[AH_SHA256_BYTES], expected[AH_SHA256_BYTES];
    REQUIRE(open_scene(&scene));
    CHECK(is_refused(&scene, 1, "job", sizeof(struct reply) - 1));
    CHECK(is_refused(&scene, 1, "other", sizeof(struct reply)));
    CHECK(is_refused(&scene, 0, "job", sizeof(struct reply)));
    CHECK(is_refused(&scene, 2, "job", sizeof(struct reply)));
    CHECK(is_refused(&scene, INT64_MIN, "job", sizeof(struct reply)));
    int silent = mesh_dial(&scene), fd = mesh_dial(&scene);
    CHECK(recv(fd, &greeting, sizeof greeting, MSG_WAITALL) == (ssize_t)sizeof greeting);
    struct reply reply = reply_of(&scene, &greeting, 1, "job");
    ah_store_prove(expected, &scene.hosts[0].store, "mesh test 1 to 0 is called", reply.nonce, greeting.nonce);
    for (size_t i = 0; i < sizeof reply; i++)
        CHECK(send(fd, (char *)&reply + i, 1, MSG_NOSIGNAL) == 1);
    CHECK(recv(fd, proof, sizeof proof, MSG_WAITALL) == (ssize_t)sizeof proof && ah_store_same(proof, expected));
    pthread_join(scene.thread, NULL);
    CHECK(scene.status == 0 && scene.fd[1] >= 0);
    close(silent);
    close(fd);
    close_scene(&scene);
}
