/* The plugin that edits lines, by libedit's own interface: its exports, the keys, pastes, completion. libedit's
 * handling of signals is not used: it sends them on to the whole process group. The locale is this thread's and only
 * while a line is read, so that the program's own stays "C". */
#include <histedit.h>
#include <locale.h>
#include <langinfo.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/process/editor.h"
#include "base/status/status.h"
#include "edit/history.h"
#include "edit/keys.h"

static struct {
    EditLine *edit;
    History *history;
    locale_t locale;
    char *path; /* of the history's file */
    const char *prompt;
    void (*complete)(void *context, const char *before, struct ah_completion *out);
    void *context;
} own_editor;

static char *show_prompt(EditLine *edit)
{
    return (char *)own_editor.prompt;
}

/* The user's characters, if they are UTF-8; else those of C.UTF-8, which every Linux has. */
static locale_t edit_utf8(void)
{
    locale_t users = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (users && !strcmp(nl_langinfo_l(CODESET, users), "UTF-8"))
        return users;
    if (users)
        freelocale(users);
    return newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

static unsigned char on_tab(EditLine *edit, int key)
{
    const LineInfo *info = el_line(edit);
    size_t length = (size_t)(info->cursor - info->buffer);
    struct ah_completion found = {0};
    unsigned char next = CC_NORM;
    char *before = malloc(length + 1);
    if (!before)
        return CC_ERROR;
    memcpy(before, info->buffer, length);
    before[length] = 0;
    own_editor.complete(own_editor.context, before, &found);
    free(before);
    if (found.insert && *found.insert && !el_insertstr(edit, found.insert))
        next = CC_REFRESH;
    if (found.list) {
        printf("\n%s", found.list);
        next = CC_REDISPLAY;
    }
    free(found.insert);
    free(found.list);
    return next == CC_NORM ? CC_ERROR : next;
}

/* Insert the terminal's input between its marks as text: none of it is read as a key. */
static unsigned char on_paste(EditLine *edit, int key)
{
    static const wchar_t mark[] = L"\033[201~";
    enum { MARK = sizeof mark / sizeof *mark - 1 };
    size_t count = 0, room = 256;
    wchar_t *text = malloc(room * sizeof *text), next;
    while (text && el_wgetc(edit, &next) == 1) {
        if (count + 2 > room) {
            wchar_t *larger = realloc(text, 2 * room * sizeof *text);
            if (!larger)
                break;
            text = larger;
            room *= 2;
        }
        text[count++] = next == L'\r' ? L'\n' : next;
        if (count >= MARK && !wmemcmp(text + count - MARK, mark, MARK)) {
            count -= MARK;
            break;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (text[i] == L'\n' || text[i] == L'\t' || (text[i] >= 32 && text[i] != 127))
            text[kept++] = text[i];
    while (kept && text[kept - 1] == L'\n')
        kept--;
    if (text) {
        text[kept] = 0;
        if (kept)
            el_winsertstr(edit, text);
    }
    free(text);
    return CC_REFRESH;
}

static void edit_keep(void *context, const char *text)
{
    HistEvent event;
    history(own_editor.history, &event, H_ENTER, text);
}

static void bind_keys(EditLine *edit)
{
    static const char *const keys[][2] = {
        {"^I", "ah-complete"}, {"\033[200~", "ah-paste"}, {"^R", "em-inc-search-prev"}, {"\033[1;5C", "em-next-word"},
        {"\033[1;5D", "ed-prev-word"}, {"\033[3~", "ed-delete-next-char"}, {"\033[H", "ed-move-to-beg"},
        {"\033[F", "ed-move-to-end"}, {"\033[1~", "ed-move-to-beg"}, {"\033[4~", "ed-move-to-end"},
        {"^W", "ed-delete-prev-word"},
    };
    el_set(edit, EL_ADDFN, "ah-complete", "complete the word", on_tab);
    el_set(edit, EL_ADDFN, "ah-paste", "insert pasted text", on_paste);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static int open_editor(const char *path, void (*complete)(void *, const char *, struct ah_completion *), void *context)
{
    HistEvent event;
    own_editor.complete = complete;
    own_editor.context = context;
    own_editor.prompt = "";
    if (own_editor.edit)
        return 0;
    own_editor.locale = edit_utf8();
    locale_t before = uselocale(own_editor.locale ? own_editor.locale : LC_GLOBAL_LOCALE);
    own_editor.history = history_init();
    own_editor.edit = el_init("accelhost", stdin, stdout, stderr);
    own_editor.path = path ? strdup(path) : NULL;
    if (own_editor.edit && own_editor.history) {
        history(own_editor.history, &event, H_SETSIZE, AH_HISTORY_MOST);
        history(own_editor.history, &event, H_SETUNIQUE, 1);
        el_set(own_editor.edit, EL_HIST, history, own_editor.history);
        el_set(own_editor.edit, EL_PROMPT_ESC, show_prompt, '\1');
        el_set(own_editor.edit, EL_EDITOR, "emacs");
        bind_keys(own_editor.edit);
        ah_keys_open(own_editor.edit);
        el_source(own_editor.edit, NULL); /* the user's ~/.editrc */
        if (own_editor.path)
            ah_history_read(own_editor.path, edit_keep, NULL);
    }
    uselocale(before);
    return own_editor.edit && own_editor.history ? 0 : ah_fail(AH_ENOMEM, "out of memory");
}

static enum ah_editor_end read_line(char **line, const char *prompt)
{
    int count = 0;
    locale_t before = uselocale(own_editor.locale ? own_editor.locale : LC_GLOBAL_LOCALE);
    own_editor.prompt = prompt;
    *line = NULL;
    ah_keys_begin();
    const char *text = el_gets(own_editor.edit, &count);
    if (text && count > 0)
        *line = strndup(text, (size_t)count - (text[count - 1] == '\n'));
    uselocale(before);
    bool interrupted = ah_keys_end();
    return *line ? AH_EDITOR_LINE : interrupted ? AH_EDITOR_INTERRUPT : AH_EDITOR_END;
}

static void edit_remember(const char *text)
{
    edit_keep(NULL, text);
    if (own_editor.path)
        ah_history_add(own_editor.path, text);
}

const struct ah_editor ah_edit_plugin = {AH_EDITOR_ABI, open_editor, read_line, edit_remember};
