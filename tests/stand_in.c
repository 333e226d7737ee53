/* The sessions and questions of mpstui/sim/bin/nvidia-cuda-mps-control, for the tests: what that script takes is the
 * start of a Python, ten times what this takes, and the suite starts over ten thousand. Called as that Python; of all
 * else than such a session, and where anything is unusual, it becomes the Python, which is PYTHON.
 * tests/sim/test_stand_in.py holds both against each other. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CHUNK 65536
#define COMMAND 4096
#define PACKET (1 << 18)

static const char *const MODULES[] = {"server", "namespace", "client", "device", "sm-partition", "feature", "memacct", 0};
struct bytes { char *data; size_t size; };
static struct bytes out;

static void put(struct bytes *to, const char *data, size_t size) {
    if (!(to->data = realloc(to->data, to->size + size + 1))) _exit(1);
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void say(int stream, struct bytes *text) {
    for (size_t done = 0; done < text->size;) {
        ssize_t size = write(stream, text->data + done, text->size - done);
        if (size < 0) _exit(1);
        done += size;
    }
    text->size = 0;
}

static int fail(const char *text) {
    say(1, &out);
    if (write(2, text, strlen(text)) < 0) _exit(1);
    return 1;
}

static int reach(const char *directory, const char *name) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(to.sun_path, sizeof to.sun_path, "%s/%s", directory, name) >= sizeof to.sun_path) return -1;
    int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connection >= 0 && connect(connection, (struct sockaddr *)&to, sizeof to) == 0) return connection;
    close(connection);
    return -1;
}

static ssize_t sends(int connection, const char *before, const char *data, size_t size) {
    struct bytes packet = {0, 0};
    put(&packet, before, strlen(before));
    put(&packet, data, size);
    ssize_t sent = send(connection, packet.data, packet.size, MSG_NOSIGNAL);
    free(packet.data);
    return sent;
}

/* One line's answer; -1 where the session goes on. */
static int ask(int connection, const char *word, const char *line, size_t size) {
    static char packet[CHUNK];
    if (*word == '-' || *word == '!') return *word == '!';
    if (*word != '+' || sends(connection, "C", line, size < COMMAND ? size : COMMAND) < 0) return 2;
    for (;;) {
        ssize_t got = recv(connection, packet, CHUNK, 0);
        if (got <= 0) return 2;
        if (got == 1 && *packet == 'E') break;
        if (got == 1 && *packet == 'Q') { out.size = 0; return 0; } /* the daemon has ended under it (fact 30) */
        put(&out, packet + 1, got - 1);
    }
    if (isatty(1)) say(1, &out);
    return -1;
}

static int session(const char *directory, const char *user) {
    static char chunk[CHUNK];
    char word[17] = "";
    const char *lost = "Cannot send command to MPS control daemon process\n";
    struct bytes rest = {0, 0};
    int connection = reach(directory, "control_privileged"), done = -1;
    int is_root = *user ? !strcmp(user, "0") : geteuid() == 0;
    if (connection < 0 && !is_root) connection = reach(directory, "control");
    if (connection < 0) return fail("Cannot find MPS control daemon process\n");
    if (sends(connection, "UI ", user, strlen(user)) < 0 || recv(connection, word, 16, 0) < 0) return fail(lost);
    while (done < 0) {
        char *end, *line;
        ssize_t got = read(0, chunk, CHUNK);
        if (got < 0) return fail(lost);
        if (!got) break;
        put(&rest, chunk, got);
        for (line = rest.data; done < 0 && (end = memchr(line, '\n', rest.data + rest.size - line)); line = end + 1)
            done = ask(connection, word, line, end - line);
        rest.size -= line - rest.data;
        memmove(rest.data, line, rest.size);
    }
    if (done < 0 && rest.size) done = ask(connection, word, rest.data, rest.size);
    if (done == 2) return fail(lost);
    say(1, &out);
    return done > 0;
}

static int is_module(const char *directory, const char *word) {
    static char marker[CHUNK + 1], path[4096];
    int known = 0;
    for (const char *const *name = MODULES; *name; name++) known |= !strcmp(*name, word);
    if (!known || (size_t)snprintf(path, sizeof path, "%s/mpstui-simulated", directory) >= sizeof path) return 0;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t size = read(file, marker, CHUNK);
    close(file);
    marker[size < 0 ? 0 : size] = 0;
    char *driver = strstr(marker, "\"driver\": \"");
    return driver && strspn(driver + 11, "0123456789") >= 3 && strncmp(driver + 11, "615", 3) >= 0;
}

static int call(const char *directory, const char *user, char **words) {
    static char packet[PACKET + 1];
    struct bytes text = {0, 0}, said[2] = {{0, 0}, {0, 0}};
    ssize_t got;
    int connection = reach(directory, "control");
    if (connection < 0) return fail("Cannot find MPS control daemon process\n");
    put(&text, user, strlen(user));
    for (; *words; words++) {
        put(&text, "", 1);
        put(&text, *words, strlen(*words));
    }
    if (sends(connection, "V3 ", text.data, text.size) < 0) return 1;
    while ((got = recv(connection, packet, PACKET, 0)) > 0) {
        packet[got] = 0;
        if (*packet == 'S') {
            say(1, &said[0]);
            say(2, &said[1]);
            return atoi(packet + 1);
        }
        put(&said[*packet == 'X'], packet + 1, got - 1);
    }
    return got < 0 ? 1 : fail("The MPS control daemon closed the connection\n");
}

static void interrupted(int number) { _exit(number ? 1 : 0); }

int main(int count, char **argv) {
    const char *tail = "/sim/bin/nvidia-cuda-mps-control", *user = getenv("MPSTUI_SIM_UID");
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (!directory || !*directory) directory = "/tmp/nvidia-mps";
    if (!user) user = "";
    if (count >= 4 && !strcmp(argv[1], "-I") && !strcmp(argv[2], "-S") && strlen(argv[3]) >= strlen(tail) &&
        !strcmp(argv[3] + strlen(argv[3]) - strlen(tail), tail)) {
        char **words = argv + 4;
        if (*words && !strncmp(*words, "--simulated-driver=", 19)) words++;
        if (!*words || is_module(directory, *words)) {
            if (signal(SIGINT, interrupted) == SIG_IGN) signal(SIGINT, SIG_IGN);
            signal(SIGPIPE, SIG_IGN);
            if (*words) _exit(call(directory, user, words));
            prctl(PR_SET_NAME, "nvidia-cuda-mps");
            _exit(session(directory, user));
        }
    }
    argv[0] = PYTHON;
    execv(PYTHON, argv);
    _exit(127);
}
