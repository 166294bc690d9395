/* Folders that appear whole or not at all: several parts, failures, what the dead have left. */
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "io/manifest.h"
#include "io/saver.h"
#include "io/stage.h"

static char root[] = "/tmp/accelhost-saver-XXXXXX", goal[64];

static void enter(void)
{
    snprintf(root + sizeof root - 7, 7, "XXXXXX");
    REQUIRE(mkdtemp(root));
    snprintf(goal, sizeof goal, "%s/goal", root);
}

static bool has(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return access(path, F_OK) == 0;
}

static void make(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    REQUIRE(mkdir(path, 0777) == 0);
}

static struct ah_saver_file text_file(const char *name, const char *text)
{
    return (struct ah_saver_file){.name = name, .text = text, .bytes = strlen(text)};
}

AH_TEST(saver_puts_the_files_of_all_parts_into_one_folder)
{
    struct ah_saver *first = NULL, *second = NULL;
    struct ah_saver_file one = text_file("one", "1"), two = text_file("two", "22");
    enter();
    for (int round = 0; round < 20; round++) {
        REQUIRE(ah_saver_begin(&first, goal) == 0);
        REQUIRE(ah_saver_join(&second, ah_saver_folder(first), 1) == 0);
        struct ah_saver_plan plan = {.file = &one, .count = 1, .parts = 2, .facts = "{\"a\": 1}", .timeout = 20};
        struct ah_saver_plan other = {.file = &two, .count = 1};
        REQUIRE(ah_saver_start(first, &plan) == 0);
        CHECK(!ah_saver_is_over(first));
        CHECK(round || !has("goal"));
        REQUIRE(ah_saver_start(second, &other) == 0);
        CHECK(ah_saver_written(first) == 0 && ah_saver_written(second) == 0);
        CHECK(ah_saver_wait(first) == 0 && ah_saver_wait(second) == 0);
        CHECK(ah_saver_is_over(first));
        ah_saver_close(second);
        ah_saver_close(first);
        CHECK(has("goal/one") && has("goal/two") && has("goal/manifest.json") && !has("goal/.part_1"));
    }
    ah_folder_remove(root);
}

AH_TEST(saver_leaves_nothing_when_a_part_fails_or_does_not_come)
{
    struct ah_saver *first = NULL, *second = NULL;
    struct ah_saver_file one = text_file("one", "1"), wrong = text_file("no/such/folder", "");
    enter();
    REQUIRE(ah_saver_begin(&first, goal) == 0);
    REQUIRE(ah_saver_join(&second, ah_saver_folder(first), 1) == 0);
    struct ah_saver_plan plan = {.file = &one, .count = 1, .parts = 2, .facts = "{}", .timeout = 20};
    struct ah_saver_plan other = {.file = &wrong, .count = 1};
    REQUIRE(ah_saver_start(first, &plan) == 0 && ah_saver_start(second, &other) == 0);
    CHECK(ah_saver_wait(second) == AH_EIO);
    CHECK(strstr(ah_error_text(), "its folder does not exist"));
    CHECK(ah_saver_written(first) == 0);
    CHECK(ah_saver_wait(first) == AH_EIO);
    CHECK(!strcmp(ah_error_text(), "rank 1 could not write its files"));
    ah_saver_close(second);
    ah_saver_close(first);
    CHECK(rmdir(root) == 0);

    enter();
    REQUIRE(ah_saver_begin(&first, goal) == 0);
    plan.timeout = 0.05;
    REQUIRE(ah_saver_start(first, &plan) == 0);
    CHECK(ah_saver_wait(first) == AH_EIO);
    CHECK(!strcmp(ah_error_text(), "rank 1 has not written its files in 0.05 s"));
    ah_saver_close(first);
    REQUIRE(ah_saver_begin(&first, goal) == 0);
    plan.timeout = 100;
    REQUIRE(ah_saver_start(first, &plan) == 0);
    ah_saver_close(first); /* given up */
    CHECK(rmdir(root) == 0);
}

AH_TEST(saver_sweeps_what_the_dead_have_left_and_spares_the_living)
{
    struct ah_saver *first = NULL;
    struct ah_stage living;
    char other[80];
    enter();
    make(".goal.saving-1-0");
    make(".goal.saving-1-0/deep");
    make("kept");
    snprintf(other, sizeof other, "%s/other", root);
    REQUIRE(ah_stage_open(&living, other) == 0);
    REQUIRE(ah_saver_begin(&first, goal) == 0);
    CHECK(!has(".goal.saving-1-0"));
    CHECK(has("kept"));
    CHECK(access(living.folder, F_OK) == 0);
    CHECK(ah_stage_commit(&living) == 0);
    CHECK(has("other"));
    ah_stage_close(&living);
    ah_stage_remove(other);
    CHECK(!has("other"));
    ah_stage_remove(other); /* not there: nothing is told */
    ah_saver_close(first);
    ah_folder_remove(root);
}

AH_TEST(manifest_lists_every_file_once_and_knows_a_damaged_list)
{
    struct ah_manifest *manifest = NULL;
    char *text = NULL;
    const char hash[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    char line[200];
    CHECK(ah_manifest_new(&manifest, "[]") == AH_EINVAL);
    REQUIRE(ah_manifest_new(&manifest, "{\"z\": 1}") == 0);
    snprintf(line, sizeof line, "%s 3 a name\n%s 3 b\n", hash, hash);
    CHECK(ah_manifest_add_list(manifest, line) == 0);
    CHECK(ah_manifest_add(manifest, "b", 4, hash) == 0);
    for (size_t length = 1; length < strlen(hash) + 10; length++) {
        char cut[200];
        snprintf(cut, sizeof cut, "%.*s", (int)length, line);
        CHECK(ah_manifest_add_list(manifest, cut) == AH_EIO);
    }
    REQUIRE(ah_manifest_text(manifest, &text) == 0);
    CHECK(strstr(text, "\"a name\": {") && strstr(text, "\"size\": 3") && !strstr(text, "\"size\": 4"));
    CHECK(!strcmp(text + strlen(text) - 5, "\"\n}\n") || !strcmp(text + strlen(text) - 4, "\"\n}\n"));
    free(text);
    ah_manifest_free(manifest);
}
