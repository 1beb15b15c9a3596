/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the three modules of the stand-in driver share: a named range of device numbers whose opens are counted. */
#ifndef STANDIN_H
#define STANDIN_H

#include <linux/cdev.h>
#include <linux/list.h>

#define STANDIN_DESCRIPTION "test double of gpuhook, not NVIDIA's driver"

struct standin_region {
	const char *name;
	unsigned int major; /* 0: the kernel chooses, and it is put here */
	unsigned int first; /* the first minor */
	unsigned int count;
	int (*may_open)(unsigned int minor); /* 0 or -errno; NULL where every minor opens */
	/* Of nvidia.ko alone: */
	struct module *owner;
	struct cdev cdev;
	atomic_t *opens;
	struct list_head list;
};

/* Like the real driver, neither of these makes a node in /dev. */
int standin_register(struct standin_region *region, struct module *owner);
void standin_unregister(struct standin_region *region);
/* Whether the driver plays one from before 545, which has `nvidia-frontend` for everything under 195. */
bool standin_is_frontend(void);

#endif
