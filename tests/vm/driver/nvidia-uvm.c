// SPDX-License-Identifier: MIT OR Apache-2.0
/* A TEST DOUBLE of nvidia-uvm.ko: the name, its major, its two minors. */
#include <linux/module.h>

#include "standin.h"

static unsigned int uvm_major;
module_param(uvm_major, uint, 0444);
MODULE_PARM_DESC(uvm_major, "major of nvidia-uvm; 0: the kernel chooses");

static bool uvm_disable_hmm;
module_param(uvm_disable_hmm, bool, 0444);
MODULE_PARM_DESC(uvm_disable_hmm, "the real driver's parameter; nothing here depends on it");

static struct standin_region uvm_region = { .name = "nvidia-uvm", .count = 2 };

static int __init standin_uvm_init(void)
{
	uvm_region.major = uvm_major;
	return standin_register(&uvm_region, THIS_MODULE);
}

static void __exit standin_uvm_exit(void)
{
	standin_unregister(&uvm_region);
}

module_init(standin_uvm_init);
module_exit(standin_uvm_exit);
MODULE_DESCRIPTION(STANDIN_DESCRIPTION);
MODULE_LICENSE("Dual MIT/GPL");
