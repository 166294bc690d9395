/* The types are those of statfs(2) and of the file systems' own headers. */
#include "base/io/file_system.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/vfs.h>

static const uint32_t shared[] = {
    0x6969,     /* NFS */
    0x65735546, /* FUSE */
    0x0bd00bd0, /* Lustre */
    0x47504653, /* GPFS */
    0x19830326, /* BeeGFS */
    0x00c36400, /* Ceph */
    0x01021997, /* 9P */
    0x517b,     /* SMB */
    0xff534d42, /* CIFS */
    0xfe534d42, /* SMB 2 */
    0x5346414f, /* AFS, the kernel's */
    0x6b414653, /* AFS, OpenAFS */
    0x73757245, /* Coda */
    0x01161970, /* GFS2 */
    0x7461636f, /* OCFS2 */
    0x20030528, /* OrangeFS */
    0x786f4256, /* VirtualBox's shared folders */
};

static const uint32_t local[] = {
    0xef53,     /* ext2 to ext4 */
    0x58465342, /* XFS */
    0x9123683e, /* Btrfs */
    0x01021994, /* tmpfs */
    0x794c7630, /* overlay */
    0xf2f52010, /* F2FS */
    0x2fc12fc1, /* ZFS */
    0xca451a4e, /* bcachefs */
};

static bool type_is_among(unsigned long type, const uint32_t *types, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((uint32_t)type == types[i])
            return true;
    return false;
}

bool ah_file_system_is_shared(unsigned long type)
{
    return type_is_among(type, shared, sizeof shared / sizeof *shared);
}

bool ah_path_is_shared(const char *path)
{
    struct statfs info;
    return statfs(path, &info) == 0 && ah_file_system_is_shared((unsigned long)info.f_type);
}

bool ah_path_is_local(const char *path)
{
    struct statfs info;
    return statfs(path, &info) == 0 && type_is_among((unsigned long)info.f_type, local, sizeof local / sizeof *local);
}
