/* Reports of hosts about themselves, and the table of them as a text, when a host reports something impossible. */
#include "comm/join/membership.h"
#include "comm/join/membership_table.h"

#include "comm/control/control_block.h"
#include "test.h"

static int membership_take(const char *numbers, const char *name)
{
    static const struct ah_membership mine = {.what = "machine", .number = -1, .first = -1, .ranks = 1, .hosts = 2};
    struct ah_member_table member_table = {.mine = &mine};
    char line[AH_MEMBER_TEXT];
    snprintf(line, sizeof line, "%zu %s 0 0 %s", sizeof(struct ah_rank_entry), numbers, name);
    return ah_member_table_add(&member_table, line, 0);
}

AH_TEST(a_host_whose_name_would_be_more_than_a_name_in_the_table_is_refused)
{
    CHECK_OK(membership_take("-1 -1 1 2 0", "node-1.example"));
    CHECK_FAILS(membership_take("-1 -1 1 2 0", "node,1:other"), AH_EIO, "where a host should be");
    CHECK_FAILS(membership_take("-1 -1 1 2 0", "node/2"), AH_EIO, "where a host should be");
    CHECK_FAILS(membership_take("-1 -1 1 2 0", "\033[2Jnode"), AH_EIO, "where a host should be");
    CHECK_FAILS(membership_take("-1 -1 1 2 0", ""), AH_EIO, "where a host should be");
}

AH_TEST(a_host_with_numbers_beyond_what_a_job_has_is_refused)
{
    static const char *const numbers[] = {"64 -1 1 2 0", "-1 256 1 2 0", "-1 -1 0 2 0", "-1 -1 257 2 0", "-1 -1 1 -1 0",
                                          "-1 -1 1 65 0", "-1 -1 1 2 257"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CHECK_FAILS(membership_take(numbers[i], "node"), AH_EINVAL, "node: expected at most 64 hosts and 256 ranks");
}

AH_TEST(a_table_of_hosts_is_read_as_it_was_written_and_nothing_else_is)
{
    static const char *const wrong[] = {
        "", "0", "0/", "0/0:a", "0/0:a/", "0/0:a/0", "1/0:a/2", "-1/0:a/2", "0/1:a/2", "0/0:a,0:b/2", "0/0:a,3:b/2",
        "0/0:a,1:b/257", "0/0:a,1:/2", "0/0:a\033[2J/2", "0/0:a/2x", "0/0:a,1:b,/3",
    };
    struct ah_hosts hosts = {.count = 2, .mine = 1, .first = {0, 3, 5}, .name = {"a", "b.c"}}, back = {0};
    char text[AH_HOSTS_TEXT];
    ah_hosts_write(&hosts, text, sizeof text);
    CHECK_OK(ah_hosts_read(&back, text));
    CHECK(back.count == 2 && back.mine == 1 && back.first[1] == 3 && back.first[2] == 5);
    CHECK(!strcmp(back.name[1], "b.c"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(ah_hosts_read(&back, wrong[i]), AH_EINVAL, "is no table of hosts");
}

AH_TEST(a_table_of_hosts_that_has_other_ranks_here_is_refused)
{
    struct ah_membership mine = {.what = "machine", .name = "b", .first = -1, .ranks = 2};
    struct ah_hosts hosts = {.count = 2, .mine = 1, .first = {0, 3, 5}, .name = {"a", "b"}};
    CHECK_OK(ah_membership_check(&mine, &hosts));
    mine.ranks = 1;
    CHECK_FAILS(ah_membership_check(&mine, &hosts), AH_EINVAL,
                "b has 1 ranks, but in the table of machines its 2 start at 3");
    mine = (struct ah_membership){.what = "host", .name = "b", .first = 2, .ranks = 2};
    CHECK_FAILS(ah_membership_check(&mine, &hosts), AH_EINVAL, "in the table of hosts its 2 start at 3");
}
