// SPDX-License-Identifier: MIT OR Apache-2.0
/* A TEST DOUBLE of nvidia-modeset.ko: the name and 195:254. */
#include <linux/module.h>

#include "standin.h"

static struct standin_region modeset_region = { .name = "nvidia-modeset", .major = 195, .first = 254, .count = 1 };

static int __init standin_modeset_init(void)
{
	return standin_is_frontend() ? 0 : standin_register(&modeset_region, THIS_MODULE);
}

static void __exit standin_modeset_exit(void)
{
	standin_unregister(&modeset_region);
}

module_init(standin_modeset_init);
module_exit(standin_modeset_exit);
MODULE_DESCRIPTION(STANDIN_DESCRIPTION);
MODULE_LICENSE("Dual MIT/GPL");
