// SPDX-License-Identifier: MIT OR Apache-2.0
/* Test double of a CUDA program: loads libcuda.so.1 as every CUDA program does and prints one line,
 * `cuInit=<code> devices=<count>`. Exit status 0 only where cuInit returned 0. With the stand-in library its answer is
 * not a CUDA result (standin: not CUDA).
 */
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        printf("cuInit=none %s\n", dlerror());
        return 2;
    }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*get_count)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
    if (init == NULL || get_count == NULL) {
        printf("cuInit=none no such symbol\n");
        return 2;
    }
    int code = init(0);
    int count = 0;
    if (code == 0)
        get_count(&count);
    printf("cuInit=%d devices=%d\n", code, count);
    return code == 0 ? 0 : 1;
}
