/* The types are those of statfs(2) and of the file systems' own headers. */
#include "base/file_system.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/vfs.h>

bool ah_file_system_is_shared(unsigned long type)
{
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
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if ((uint32_t)type == shared[i])
            return true;
    return false;
}

bool ah_path_is_shared(const char *path)
{
    struct statfs info;
    return statfs(path, &info) == 0 && ah_file_system_is_shared((unsigned long)info.f_type);
}
