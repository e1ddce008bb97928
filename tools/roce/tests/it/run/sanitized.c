// Opens a device in a second thread and reads a file of it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

static void *open_device(void *failed) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
    FILE *file = fopen("/sys/class/infiniband/roce0/node_type", "r");
    if (!context || !file) {
        *(int *)failed = 1;
        return NULL;
    }
    fclose(file);
    printf("device %s\n", ibv_get_device_name(list[0]));
    ibv_close_device(context);
    ibv_free_device_list(list);
    return NULL;
}

int main(int argc, char **argv) {
    int failed = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, open_device, &failed) || pthread_join(thread, NULL)) {
        return 3;
    }
    if (argc > 1 && !strcmp(argv[1], "use-after-free")) {
        volatile char *byte = malloc(1);
        free((void *)byte);
        return byte[0];
    }
    return failed;
}
