/* Folders that appear whole or not at all: several parts, failures, remains of dead saves. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io/folder.h"
#include "base/status/notice.h"
#include "forbid.h"
#include "io/manifest.h"
#include "io/saver.h"
#include "io/stage.h"

static char root[] = "/tmp/accelhost-saver-XXXXXX", goal[64];

static void saver_enter(void)
{
    snprintf(root + sizeof root - 7, 7, "XXXXXX");
    REQUIRE(mkdtemp(root));
    snprintf(goal, sizeof goal, "%s/goal", root);
}

static bool saver_has(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return access(path, F_OK) == 0;
}

static void saver_make(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    REQUIRE(mkdir(path, 0777) == 0);
}

static struct ah_saver_file text_file(const char *name, const char *text)
{
    return (struct ah_saver_file){.name = name, .text = text, .bytes = strlen(text)};
}

AH_TEST(saver_writes_the_files_of_all_parts_to_one_folder)
{
    struct ah_saver *first = NULL, *second = NULL;
    struct ah_saver_file one = text_file("one", "1"), two = text_file("two", "22");
    saver_enter();
    for (int round = 0; round < 20; round++) {
        REQUIRE(ah_saver_begin(&first, goal, true) == 0);
        REQUIRE(ah_saver_join(&second, ah_saver_folder(first), 1) == 0);
        struct ah_saver_plan plan = {.file = &one, .count = 1, .parts = 2, .facts = "{\"a\": 1}", .timeout = 20};
        struct ah_saver_plan other = {.file = &two, .count = 1};
        REQUIRE(ah_saver_start(first, &plan) == 0);
        CHECK(!ah_saver_is_over(first));
        CHECK(round || !saver_has("goal"));
        REQUIRE(ah_saver_start(second, &other) == 0);
        CHECK(ah_saver_written(first) == 0 && ah_saver_written(second) == 0);
        CHECK(ah_saver_wait(first) == 0 && ah_saver_wait(second) == 0);
        CHECK(ah_saver_is_over(first));
        ah_saver_close(second);
        ah_saver_close(first);
        CHECK(saver_has("goal/one") && saver_has("goal/two") && saver_has("goal/manifest.json") &&
              !saver_has("goal/.part_1"));
    }
    ah_folder_remove(root, NULL);
}

AH_TEST(saver_leaves_nothing_when_a_part_fails_or_does_not_arrive)
{
    struct ah_saver *first = NULL, *second = NULL;
    struct ah_saver_file one = text_file("one", "1"), wrong = text_file("no/such/folder", "");
    saver_enter();
    REQUIRE(ah_saver_begin(&first, goal, true) == 0);
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

    saver_enter();
    REQUIRE(ah_saver_begin(&first, goal, true) == 0);
    plan.timeout = 0.05;
    REQUIRE(ah_saver_start(first, &plan) == 0);
    CHECK(ah_saver_wait(first) == AH_EIO);
    CHECK(!strcmp(ah_error_text(), "rank 1 has not written its files in 0.05 s"));
    ah_saver_close(first);
    REQUIRE(ah_saver_begin(&first, goal, true) == 0);
    plan.timeout = 100;
    REQUIRE(ah_saver_start(first, &plan) == 0);
    ah_saver_close(first); /* aborted */
    CHECK(rmdir(root) == 0);
}

static void make_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    REQUIRE(file && fputs("x", file) >= 0 && fclose(file) == 0);
}

/* A hidden name of this host: ".GOAL.saving-HOST-REST". */
static const char *saver_hidden(const char *name, const char *rest)
{
    static char text[200];
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, ".%s.saving-%s-%s", name, host, rest);
    return text;
}

AH_TEST(saver_sweeps_what_the_dead_have_left_and_spares_the_living)
{
    struct ah_saver *first = NULL;
    struct ah_stage living;
    char other[80];
    saver_enter();
    saver_make(saver_hidden("goal", "1-0"));
    saver_make(saver_hidden("goal", "1-0/deep"));
    saver_make("kept");
    snprintf(other, sizeof other, "%s/goal", root);
    REQUIRE(ah_stage_open(&living, other, true) == 0);
    CHECK(!saver_has(saver_hidden("goal", "1-0")));
    REQUIRE(ah_saver_begin(&first, goal, true) == 0);
    CHECK(saver_has("kept"));
    CHECK(access(living.folder, F_OK) == 0);
    CHECK(strcmp(living.folder, ah_saver_folder(first)));
    CHECK(ah_stage_commit(&living) == 0);
    CHECK(saver_has("goal"));
    ah_stage_close(&living);
    ah_saver_close(first);
    ah_folder_remove(root, NULL);
}

AH_TEST(saver_sweeps_hidden_names_of_its_goal_and_host_alone)
{
    static const char *const foreign[] = {
        ".saving-plans", ".my.saving-accounts", ".goal_3.saving-", ".goal_3.saving-1-0", ".goal_3.saving-host-1-x",
        ".goal_3.saving-host--0", ".goal_3.saving-host-1-", ".goal_x.saving-host-1-0", ".goal_.saving-host-1-0",
        ".other.saving-host-1-0", "goal_3.saving-host-1-0", ".goal_3.saving-host-1-0.bak", ".goals_3.saving-host-1-0",
    };
    enum { FOREIGN = sizeof foreign / sizeof foreign[0] };
    struct ah_stage stage;
    char numbered[80];
    saver_enter();
    for (int i = 0; i < FOREIGN; i++)
        saver_make(foreign[i]);
    saver_make(saver_hidden("goal_3", "22-1"));
    saver_make(saver_hidden("goal_12", "22-1"));
    saver_make(saver_hidden("goal_3", "0x1-1"));
    snprintf(numbered, sizeof numbered, "%s/goal_3", root);
    REQUIRE(ah_stage_open(&stage, numbered, true) == 0);
    ah_stage_close(&stage);
    for (int i = 0; i < FOREIGN; i++)
        if (!saver_has(foreign[i]))
            test_failed(__FILE__, __LINE__, "'%s' was removed", foreign[i]);
    CHECK(!saver_has(saver_hidden("goal_3", "22-1")));
    CHECK(!saver_has(saver_hidden("goal_12", "22-1")));
    ah_folder_remove(root, NULL);
}

static char shown[1024];

static void saver_show(const char *line)
{
    snprintf(shown, sizeof shown, "%s", line);
}

static void saver_save(const char *path)
{
    struct ah_saver *saver = NULL;
    struct ah_saver_file one = text_file("one", "1");
    struct ah_saver_plan plan = {.file = &one, .count = 1, .parts = 1, .facts = "{}", .timeout = 20};
    REQUIRE(ah_saver_begin(&saver, path, true) == 0);
    REQUIRE(ah_saver_start(saver, &plan) == 0);
    CHECK_OK(ah_saver_wait(saver));
    ah_saver_close(saver);
}

AH_TEST(saver_removes_checkpoints_and_leaves_what_it_did_not_write)
{
    char text[256];
    saver_enter();
    saver_save(goal);
    ah_stage_remove(goal);
    CHECK(!saver_has("goal"));
    ah_stage_remove(goal); /* does not exist: nothing is reported */
    ah_notice_set_output(saver_show);
    saver_save(goal);
    make_file("goal/notes");
    shown[0] = '\0';
    ah_stage_remove(goal);
    snprintf(text, sizeof text, "not removed: '%s': 'notes' in it is no part of the checkpoint", goal);
    CHECK(!strcmp(shown, text));
    CHECK(saver_has("goal/notes") && saver_has("goal/one") && saver_has("goal/manifest.json"));
    shown[0] = '\0';
    ah_stage_remove(goal);
    CHECK(!*shown); /* the same line once */
    /* A replaced folder keeps files that are not the checkpoint's, under a name that its owner sees. */
    saver_save(goal);
    snprintf(text, sizeof text, "'%s': 'notes' in it is no part of the checkpoint; the folder is now '%s.replaced-0'",
             goal, goal);
    CHECK(!strcmp(shown, text));
    CHECK(saver_has("goal.replaced-0/notes") && saver_has("goal/manifest.json") && !saver_has("goal/notes"));
    saver_make("plain");
    snprintf(text, sizeof text, "%s/plain", root);
    ah_stage_remove(text);
    CHECK(saver_has("plain") &&
          strstr(shown, "plain' is no checkpoint of this program: it has no readable manifest.json"));
    ah_notice_set_output(NULL);
    ah_folder_remove(root, NULL);
}

AH_TEST(saver_leaves_the_folder_that_another_process_has_made_meanwhile)
{
    struct ah_stage mine, other;
    saver_enter();
    for (int round = 0; round < 2; round++) { /* the goal is new, then it replaces a checkpoint */
        REQUIRE(ah_stage_open(&mine, goal, round > 0) == 0);
        REQUIRE(ah_stage_open(&other, goal, true) == 0);
        FILE *file = fopen(strcat(other.folder, "/whole"), "w");
        REQUIRE(file && fclose(file) == 0);
        *strrchr(other.folder, '/') = '\0';
        CHECK_OK(ah_stage_commit(&other));
        CHECK_FAILS(ah_stage_commit(&mine), AH_EIO, "goal' since this save began: set a different project_dir");
        ah_stage_close(&other);
        ah_stage_close(&mine);
        CHECK(saver_has("goal/whole"));
        ah_folder_remove(goal, NULL);
        if (round == 0)
            saver_save(goal);
    }
    CHECK_OK(ah_folder_remove(root, NULL));
}

AH_TEST(saver_fills_the_folder_to_which_a_link_leads)
{
    char real[80];
    saver_enter();
    snprintf(real, sizeof real, "%s/disk/real", root);
    saver_make("disk");
    saver_save(real);
    REQUIRE(symlink("disk/real", goal) == 0);
    make_file("disk/real/notes");
    saver_save(goal);
    CHECK(saver_has("disk/real/manifest.json") && saver_has("disk/real.replaced-0/notes") && saver_has("goal/one"));
    ah_stage_remove(goal);
    CHECK(saver_has("goal/one"));
    REQUIRE(unlink(goal) == 0 && symlink("nowhere", goal) == 0);
    struct ah_stage stage;
    CHECK_FAILS(ah_stage_open(&stage, goal, true), AH_EIO, "goal' is a link that leads to no folder: No such file");
    ah_stage_close(&stage);
    ah_folder_remove(root, NULL);
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

/* In a separate process in which no flush succeeds. */
static int note_unflushed(const char *path)
{
    struct ah_manifest *manifest = NULL;
    if (!forbid_call(SYS_fsync, EIO))
        return 77;
    if (ah_manifest_new(&manifest, "{}") < 0)
        return 1;
    int status = ah_manifest_add_folder(manifest, path);
    return status == AH_EIO && strstr(ah_error_text(), "cannot write: Input/output error") ? 0 : 2;
}

AH_TEST(manifest_flushes_each_file_and_folder_that_it_notes)
{
    static const char *const names[] = {"goal/file", "goal/deep"};
    for (int i = 0; i < 2; i++) {
        int status = 0;
        saver_enter();
        saver_make("goal");
        if (i == 0)
            make_file(names[i]);
        else
            saver_make(names[i]);
        pid_t child = fork();
        if (child == 0)
            _exit(note_unflushed(goal));
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
        ah_folder_remove(root, NULL);
    }
}
