/* The member table of a job's hosts: lines of text in, a table or a contradiction out. */
#include "comm/join/membership_table.h"
#include "test.h"

static struct ah_membership table_machine(const char *name, int number, int ranks)
{
    struct ah_membership host = {.what = "machine", .number = number, .first = -1, .ranks = ranks, .hosts = 3};
    snprintf(host.name, sizeof host.name, "%s", name);
    return host;
}

static int table_take(struct ah_member_table *member_table, struct ah_membership host, int64_t place)
{
    char text[AH_MEMBER_TEXT];
    ah_member_table_write(&host, text, sizeof text);
    return ah_member_table_add(member_table, text, place);
}

AH_TEST(a_membership_table_numbers_hosts_as_requested_and_then_by_order_of_arrival)
{
    struct ah_membership mine = table_machine("a", -1, 2);
    struct ah_member_table member_table = {.mine = &mine};
    struct ah_hosts hosts;
    int order[AH_HOSTS_MAX];
    CHECK_OK(table_take(&member_table, table_machine("late", -1, 1), 7));
    CHECK_OK(table_take(&member_table, table_machine("zero", 0, 2), 4));
    CHECK_OK(table_take(&member_table, table_machine("later", -1, 3), 9));
    ah_member_table_order(&member_table, order);
    CHECK_OK(ah_member_table_make(&member_table, order, &hosts));
    CHECK(hosts.count == 3 && hosts.first[1] == 2 && hosts.first[2] == 3 && hosts.first[3] == 6);
    CHECK(!strcmp(hosts.name[0], "zero") && !strcmp(hosts.name[1], "late") && !strcmp(hosts.name[2], "later"));
    CHECK(member_table.place[order[1]] == 7);
}

AH_TEST(a_member_table_forgets_machines_that_are_gone)
{
    struct ah_membership mine = table_machine("a", -1, 2);
    struct ah_member_table member_table = {.mine = &mine};
    char missing[64];
    CHECK_OK(table_take(&member_table, table_machine("a", 0, 1), 0));
    CHECK_OK(table_take(&member_table, table_machine("b", 1, 2), 1));
    ah_member_table_drop(&member_table, 5);
    ah_member_table_drop(&member_table, 0);
    CHECK(member_table.count == 1 && member_table.ranks == 2 && member_table.place[0] == 1);
    ah_member_table_missing(&member_table, missing, sizeof missing);
    CHECK(!strcmp(missing, "machines 0, 2"));
    CHECK_OK(table_take(&member_table, table_machine("again", 0, 1), 2));
    CHECK_OK(table_take(&member_table, table_machine("c", -1, 1), 3));
    ah_member_table_drop(&member_table, 2);
    ah_member_table_missing(&member_table, missing, sizeof missing);
    CHECK(!strcmp(missing, "1 of 3 machines"));
}

AH_TEST(a_membership_table_reports_contradictions_and_malformed_hosts)
{
    struct ah_membership mine = table_machine("a", -1, 2), other = table_machine("d", -1, 1);
    struct ah_member_table member_table = {.mine = &mine};
    int order[AH_HOSTS_MAX];
    struct ah_hosts hosts;
    CHECK_OK(table_take(&member_table, table_machine("a", 1, 1), 0));
    CHECK_FAILS(table_take(&member_table, table_machine("b", 1, 1), 1), AH_EINVAL,
                "a and b are both configured as machine 1");
    CHECK_FAILS(table_take(&member_table, table_machine("c", 3, 1), 1), AH_EINVAL,
                "c is configured as machine 3 of 3, which count from 0");
    other.hosts = 2;
    CHECK_FAILS(table_take(&member_table, other, 1), AH_EINVAL, "a is configured for 3 machines, and d for 2");
    other = table_machine("d", -1, 1);
    other.least = 2;
    CHECK_FAILS(table_take(&member_table, other, 1), AH_EINVAL,
                "a is configured for at least 0 of its 3 machines, and d for 2");
    other.least = 0;
    other.restarts = 4;
    CHECK_FAILS(table_take(&member_table, other, 1), AH_EINVAL,
                "a is configured for at most 0 restarts of all ranks (max_restarts), and d for 4");
    CHECK_FAILS(ah_member_table_add(&member_table, "1 2 three", 1), AH_EIO, "the job's store holds '1 2 three'");
    CHECK_FAILS(ah_member_table_add(&member_table, "1 -1 -1 1 3 0 0 0 old", 1), AH_EINVAL,
                "old runs another version of accelhost");
    CHECK_FAILS(table_take(&member_table, table_machine("e", -1, 1000000), 1), AH_EINVAL,
                "e: expected at most 64 hosts");
    CHECK(member_table.count == 1 && member_table.ranks == 1);
    other = table_machine("f", -1, 1);
    other.size = 9;
    CHECK_OK(table_take(&member_table, other, 1));
    ah_member_table_order(&member_table, order);
    CHECK_FAILS(ah_member_table_make(&member_table, order, &hosts), AH_EINVAL,
                "the job is to have 9 ranks, and its 2 machines have 2");
}

AH_TEST(a_contradiction_names_the_first_host_of_the_job_whichever_came_first)
{
    struct ah_membership mine = {.what = "rank"}, newcomer = {.ranks = 1, .first = 4, .number = -1, .size = 5};
    struct ah_member_table member_table = {.mine = &mine};
    snprintf(newcomer.name, sizeof newcomer.name, "new");
    for (int i = 0; i < 4; i++) {
        static const int ranks[] = {3, 0, 2, 1};
        struct ah_membership host = {.ranks = 1, .first = ranks[i], .number = -1, .size = 4};
        snprintf(host.name, sizeof host.name, "node%d", ranks[i]);
        CHECK_OK(table_take(&member_table, host, i));
    }
    CHECK_FAILS(table_take(&member_table, newcomer, 4), AH_EINVAL,
                "node0 is configured for 4 ranks, and new for 5");
}
