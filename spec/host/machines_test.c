/* A launcher's parser of lines that another machine has written to the list of events. */
#include <poll.h>
#include <unistd.h>

#include "cli/machines/machines_link.h"
#include "cli/machines/machines_rendezvous.h"
#include "test.h"

struct talk {
    struct ah_store_server *server;
    struct ah_store *other;
    struct ah_machine_link link; /* of the first of two machines */
};

static bool open_talk(struct talk *talk)
{
    static const int64_t timeout_ns = INT64_C(20000000000);
    struct ah_store_options place = {.secret = "secret", .secret_bytes = 6, .generation = 0};
    struct ah_rendezvous rendezvous = {.places = {0, 1}};
    *talk = (struct talk){0};
    CHECK_OK(ah_store_serve(&talk->server, &place));
    place.port = ah_store_port(talk->server);
    CHECK_OK(ah_store_connect(&rendezvous.store, &place, timeout_ns));
    CHECK_OK(ah_store_connect(&talk->other, &place, timeout_ns));
    return rendezvous.store && talk->other && ah_machine_link_open(&talk->link, &rendezvous, 0, 2) == 0;
}

static void close_talk(struct talk *talk)
{
    ah_machine_link_close(&talk->link, false);
    ah_store_close(talk->other);
    ah_store_end(talk->server);
}

/* Until the last line has been read, which reports that the second machine is failing. */
static void send_line(struct talk *talk, const char *line)
{
    bool heard = false;
    uint64_t notification;
    CHECK_OK(ah_store_append(talk->other, "events/0", line, strlen(line), NULL));
    CHECK_OK(ah_store_append(talk->other, "events/0", "failing 1 ", 10, NULL));
    for (int i = 0; i < 400 && !heard; i++) {
        if (poll(&(struct pollfd){.fd = talk->link.notification, .events = POLLIN}, 1, 50) == 1)
            CHECK(read(talk->link.notification, &notification, sizeof notification) == sizeof notification);
        pthread_mutex_lock(&talk->link.lock);
        heard = talk->link.machine[1].failing;
        talk->link.machine[1].failing = false;
        pthread_mutex_unlock(&talk->link.lock);
    }
    CHECK(heard);
}

/* Return the known state of the second machine. */
static struct ah_machine machines_known(struct talk *talk)
{
    pthread_mutex_lock(&talk->link.lock);
    struct ah_machine machine = talk->link.machine[1];
    pthread_mutex_unlock(&talk->link.lock);
    return machine;
}

AH_TEST(an_outcome_of_another_machine_is_a_code_that_a_process_can_end_with)
{
    static const char *const wrong[] = {"outcome 1 256 0 1\n", "outcome 1 -1 0 1\n", "outcome 1 1 0\n", "outcome 1 "};
    struct talk talk;
    REQUIRE(open_talk(&talk));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        send_line(&talk, wrong[i]);
        CHECK(!machines_known(&talk).concluded && !machines_known(&talk).code);
    }
    send_line(&talk, "outcome 1 7 0 1\nwhy");
    CHECK(machines_known(&talk).concluded && machines_known(&talk).code == 7);
    CHECK(machines_known(&talk).text && !strcmp(machines_known(&talk).text, "why"));
    close_talk(&talk);
}

AH_TEST(a_signal_of_another_machine_is_one_that_there_is)
{
    static const char *const wrong[] = {"signal 1 -1", "signal 1 0", "signal 1 100000", "signal 1 x"};
    struct talk talk;
    REQUIRE(open_talk(&talk));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        send_line(&talk, wrong[i]);
        CHECK(!machines_known(&talk).signal);
    }
    send_line(&talk, "signal 1 15");
    CHECK(machines_known(&talk).signal == 15);
    close_talk(&talk);
}

AH_TEST(a_launcher_that_is_asked_to_end_once_its_ranks_have_ends_the_job)
{
    struct talk talk;
    REQUIRE(open_talk(&talk));
    send_line(&talk, "outcome 1 0 0 0\n");
    CHECK(machines_known(&talk).concluded && !machines_known(&talk).code);
    send_line(&talk, "signal 1 15");
    CHECK(machines_known(&talk).code == 128 + 15 && machines_known(&talk).order);
    close_talk(&talk);
}

AH_TEST(a_newcomer_has_a_name_that_can_be_shown)
{
    struct talk talk;
    REQUIRE(open_talk(&talk));
    send_line(&talk, "join 5 \033[2Jnode");
    send_line(&talk, "join 5 node");
    pthread_mutex_lock(&talk.link.lock);
    CHECK(talk.link.arrivals == 1 && !strcmp(talk.link.newcomers, "node"));
    pthread_mutex_unlock(&talk.link.lock);
    close_talk(&talk);
}
