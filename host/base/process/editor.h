/* Lines that somebody types at a terminal, with editing, history and completion. The editor (libedit) is the plugin
 * accelhost-edit.so, which exports its `struct ah_editor` as `ah_edit_plugin` and is opened by a prompt. One thread
 * uses it, one prompt a process. */
#ifndef AH_BASE_EDITOR_H
#define AH_BASE_EDITOR_H

enum { AH_EDITOR_ABI = 1 };

/* How reading a line ended. */
enum ah_editor_end { AH_EDITOR_LINE, AH_EDITOR_END, AH_EDITOR_INTERRUPT };

/* What the Tab key does: text to insert at the cursor, and choices to show below; either may be NULL. Both are freed
 * by the editor. */
struct ah_completion {
    char *insert, *list;
};

struct ah_editor {
    unsigned abi; /* AH_EDITOR_ABI of the headers that the plugin was built with */
    /* `history`: a file that is read now and grows by `remember`; NULL: none. A file that cannot be had is no error.
     * `complete` gets the text from the begin of the input to the cursor. AH_ENOMEM. */
    int (*open)(const char *history, void (*complete)(void *context, const char *before, struct ah_completion *out),
                void *context);
    /* Read what somebody types up to Enter; a text that is pasted is part of it, with its line ends. `*line` is to be
     * freed. Between two bytes \1 the prompt has what takes no columns. A signal that ends programs is raised again
     * when the terminal is in order. */
    enum ah_editor_end (*read)(char **line, const char *prompt);
    /* What the Up key brings back: a line, or several as one. */
    void (*remember)(const char *text);
};

/* The editor; AH_EINVAL where there is none. */
int ah_editor_open(const struct ah_editor **out);

#endif
