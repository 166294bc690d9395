/* Files that appear whole, where the system lacks a way to name a file that has none. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io/folder.h"
#include "forbid.h"
#include "io/writer.h"

static int write_twice(const char *path, int error)
{
    for (int i = 0; i < 2; i++) {
        struct ah_writer *writer = NULL;
        if (i == 0 && error && !forbid_call(SYS_linkat, error))
            return 77;
        if (ah_writer_open(&writer, path) < 0)
            return 1;
        if (ah_writer_write(writer, "whole", 5) < 0 || ah_writer_commit(writer) < 0)
            return 2;
    }
    return 0;
}

AH_TEST(writer_names_a_temporary_file_where_linkat_is_forbidden)
{
    static const int errors[] = {0, ENOSYS, EPERM, ENOENT};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        char root[] = "/tmp/accelhost-writer-XXXXXX", path[64], text[8] = "";
        int status = 0;
        REQUIRE(mkdtemp(root));
        snprintf(path, sizeof path, "%s/goal", root);
        pid_t child = fork();
        if (child == 0)
            _exit(write_twice(path, errors[i]));
        REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
        REQUIRE(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77) {
            printf("writer_names_a_temporary_file_where_linkat_is_forbidden: needs seccomp\n");
        } else {
            CHECK(WEXITSTATUS(status) == 0);
            FILE *file = fopen(path, "r");
            CHECK(file && fread(text, 1, sizeof text, file) == 5 && !strcmp(text, "whole"));
            if (file)
                fclose(file);
            CHECK(unlink(path) == 0 && rmdir(root) == 0); /* nothing else is left */
        }
        ah_folder_remove(root, NULL);
    }
}
