/* Folders of the file system. */
#ifndef AH_BASE_FOLDER_H
#define AH_BASE_FOLDER_H

/* Make a folder and those above it that are missing. AH_EINVAL for a name over 4095 bytes, AH_EIO; one that is there
 * is fine. */
int ah_folder_make(const char *path);

/* Remove a folder or file with all below it, links themselves; one that is not there is fine. AH_EIO. */
int ah_folder_remove(const char *path);

/* Bring the names in a folder to the disk; not every file system can. AH_EIO. */
int ah_folder_sync(const char *path);

#endif
