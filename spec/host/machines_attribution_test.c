/* A launcher's attribution of an attempt whose end is not reported by all machines. */
#include "base/trace/time.h"
#include "cli/machines/machines_state.h"
#include "test.h"

static const int64_t second_ns = 1000000000;

/* The second of three machines, of which one may do. */
struct scene {
    struct ah_store_server *server;
    struct ah_store *other;
    struct ah_machines machines;
};

static bool open_scene(struct scene *scene)
{
    struct ah_store_options place = {.secret = "secret", .secret_bytes = 6, .generation = 0};
    struct ah_rendezvous rendezvous = {.places = {0, 1, 2}};
    *scene = (struct scene){.machines = {
        .options = {.machines = 3, .least = 1, .stall_warning = 60},
        .hosts = {.count = 3, .mine = 1, .first = {0, 2, 4, 6}, .name = {"a", "b", "c"}},
    }};
    CHECK_OK(ah_store_serve(&scene->server, &place));
    place.port = ah_store_port(scene->server);
    CHECK_OK(ah_store_connect(&rendezvous.store, &place, 20 * second_ns));
    CHECK_OK(ah_store_connect(&scene->other, &place, 20 * second_ns));
    return rendezvous.store && scene->other && ah_machine_link_open(&scene->machines.link, &rendezvous, 1, 3) == 0;
}

static void close_scene(struct scene *scene)
{
    ah_machine_link_close(&scene->machines.link, false);
    ah_store_close(scene->other);
    ah_store_end(scene->server);
}

/* The text is the link's, or a static one. */
static int attribution_conclude(struct scene *scene, bool (*stop)(void *context), struct ah_machine_attribution *all)
{
    struct ah_machine_attribution mine = {.code = 3, .victim = true, .text = "lost a peer\n"};
    int blamed;
    ah_machines_conclude(&scene->machines, &mine, stop, scene, all, &blamed);
    return blamed;
}

static bool attribution_never(void *context)
{
    (void)context;
    return false;
}

/* The asking holds the lock. */
static bool once_somebody_was_asked_to_end(void *context)
{
    return ((struct scene *)context)->machines.link.machine[2].signal;
}

AH_TEST(the_end_of_the_first_machine_is_enough_to_know)
{
    struct scene scene;
    struct ah_machine_attribution all;
    REQUIRE(open_scene(&scene));
    ah_store_end(scene.server);
    scene.server = NULL;
    int64_t begin = ah_now_ns();
    CHECK(attribution_conclude(&scene, attribution_never, &all) == 0);
    CHECK(ah_now_ns() - begin < 8 * second_ns); /* the third one is not waited for */
    CHECK(all.code == 3 && all.final && !all.change);
    CHECK(!strcmp(all.text, "machine 0, with ranks 0-1, is gone: its connection ended\n"));
    close_scene(&scene);
}

AH_TEST(a_machine_that_leaves_slowly_has_still_left)
{
    struct scene scene;
    struct ah_machine_attribution all;
    REQUIRE(open_scene(&scene));
    CHECK_OK(ah_store_append(scene.other, "events/0", "signal 2 15", 11, NULL));
    CHECK(attribution_conclude(&scene, once_somebody_was_asked_to_end, &all) == -1);
    CHECK(!all.final && all.change && !strcmp(all.change, "c was asked to end"));
    close_scene(&scene);
}

AH_TEST(a_machine_that_ends_the_job_slowly_has_still_ended_it)
{
    struct scene scene;
    struct ah_machine_attribution all;
    REQUIRE(open_scene(&scene));
    scene.machines.options.least = 3;
    CHECK_OK(ah_store_append(scene.other, "events/0", "signal 2 15", 11, NULL));
    CHECK(attribution_conclude(&scene, once_somebody_was_asked_to_end, &all) == 2);
    CHECK(all.code == 128 + 15 && all.final && !all.change && !*all.text);
    close_scene(&scene);
}
