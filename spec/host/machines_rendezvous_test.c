/* A launcher's way into a job whose first machine answers well, wrongly, or not at all. */
#include "cli/machines/machines_rendezvous.h"

#include "base/trace/time.h"
#include "test.h"

static const int64_t second_ns = 1000000000;

struct scene {
    struct ah_store_server *server;
    struct ah_store_options place;
    struct ah_store *coordinator;
    struct ah_rendezvous rendezvous;
    struct ah_hosts hosts;
};

static void rendezvous_set(struct scene *scene, const char *key, const char *text)
{
    CHECK_OK(ah_store_set(scene->coordinator, key, text, strlen(text)));
}

static void open_scene(struct scene *scene, const char *generation)
{
    *scene = (struct scene){.place = {.secret = "secret", .secret_bytes = 6}};
    CHECK_OK(ah_store_serve(&scene->server, &scene->place));
    scene->place.port = ah_store_port(scene->server);
    CHECK_OK(ah_store_connect(&scene->coordinator, &scene->place, second_ns));
    rendezvous_set(scene, "job", "one");
    rendezvous_set(scene, "generation", generation);
    scene->rendezvous.mine = (struct ah_membership){.what = "machine",
                                                    .name = "a",
                                                    .number = -1,
                                                    .first = -1,
                                                    .ranks = 2,
                                                    .hosts = 2,
                                                    .timeout_ns = second_ns,
                                                    .stall_warning_ns = second_ns};
}

static void close_scene(struct scene *scene)
{
    ah_rendezvous_leave(&scene->rendezvous);
    ah_store_close(scene->coordinator);
    ah_store_end(scene->server);
}

/* The result of an answer. */
static int rendezvous_join(struct scene *scene, const char *answer)
{
    open_scene(scene, "0");
    CHECK_OK(ah_rendezvous_enter(&scene->rendezvous, &scene->place, 0));
    rendezvous_set(scene, "answer/0/0", answer);
    int status = ah_rendezvous_await(&scene->rendezvous, NULL, NULL, &scene->hosts);
    close_scene(scene);
    return status;
}

static bool is_over(void *context)
{
    return *(bool *)context;
}

AH_TEST(a_machine_reads_the_table_that_the_coordinator_writes)
{
    struct scene scene;
    char text[AH_MACHINES_ANSWER];
    struct ah_rendezvous written = {.restarts = 3, .port = 4711, .places = {9, 0}};
    struct ah_hosts hosts = {.count = 2, .mine = 1, .first = {0, 2, 4}, .name = {"b", "a"}};
    CHECK(ah_rendezvous_write(&written, &hosts, text, sizeof text) == (int)strlen(text));
    CHECK_OK(rendezvous_join(&scene, text));
    CHECK(scene.rendezvous.restarts == 3 && scene.rendezvous.port == 4711 && scene.rendezvous.places[0] == 9);
    CHECK(scene.hosts.count == 2 && scene.hosts.mine == 1 && !strcmp(scene.hosts.name[0], "b"));
}

AH_TEST(a_machine_does_not_believe_every_answer)
{
    struct scene scene;
    static const char *const wrong[] = {
        "", "0", "0 1", "0 1 2", "0 0 4711 ", "0 0 4711 1", "0 0 4711 1,", "0 0 4711 1,2 0/0:a/2",
        "0 0 4711 1 0/0:a,2:b/4", "0 0 0 1 0/0:a/2", "0 0 65536 1 0/0:a/2", "0 -1 4711 1 0/0:a/2",
        "0 0 4711 1 1/0:a/2", "0 0 4711 1 0/0:a/9999999", "7 0 4711 1 0/0:a/2",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(rendezvous_join(&scene, wrong[i]), AH_EIO, "expected a table of machines");
    char refused[64];
    snprintf(refused, sizeof refused, "%d b refuses", AH_EINVAL);
    CHECK_FAILS(rendezvous_join(&scene, refused), AH_EINVAL, "b refuses");
}

AH_TEST(a_machine_that_arrives_late_joins_the_next_generation)
{
    struct scene scene;
    open_scene(&scene, "4");
    CHECK_OK(ah_rendezvous_enter(&scene.rendezvous, &scene.place, 0));
    CHECK(scene.rendezvous.generation == 4);
    rendezvous_set(&scene, "generation", "5");
    rendezvous_set(&scene, "answer/5/0", "0 1 4711 0 0/0:a/2");
    CHECK_OK(ah_rendezvous_await(&scene.rendezvous, NULL, NULL, &scene.hosts));
    CHECK(scene.rendezvous.generation == 5 && scene.rendezvous.restarts == 1);
    close_scene(&scene);
}

AH_TEST(a_machine_notices_that_the_first_one_is_gone)
{
    struct scene scene;
    bool over = true;
    open_scene(&scene, "0");
    CHECK_OK(ah_rendezvous_enter(&scene.rendezvous, &scene.place, 0));
    CHECK_FAILS(ah_rendezvous_await(&scene.rendezvous, is_over, &over, &scene.hosts), AH_EPEER, "asked to end during");
    ah_store_end(scene.server);
    scene.server = NULL;
    CHECK_FAILS(ah_rendezvous_await(&scene.rendezvous, NULL, NULL, &scene.hosts), AH_EPEER, "has ended or is gone");
    close_scene(&scene);
    open_scene(&scene, "0");
    snprintf(scene.rendezvous.job, sizeof scene.rendezvous.job, "another");
    CHECK_FAILS(ah_rendezvous_enter(&scene.rendezvous, &scene.place, 1), AH_EPEER, "has begun another job");
    close_scene(&scene);
}
