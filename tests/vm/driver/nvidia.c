// SPDX-License-Identifier: MIT OR Apache-2.0
/* A TEST DOUBLE of NVIDIA's kernel driver, written for gpuhook's tests: it registers the real driver's names and numbers,
 * shows the real driver's text files, counts opens, and does nothing else. No GPU is behind it.
 *
 * /proc/driver/nvidia/standin_opens has a line `NAME MINOR OPENS REFUSED` for each node that anyone opened (that came as
 * far as this driver); a write to it resets them all.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "standin.h"

#define NV_MAJOR 195
#define CTL_MINOR 255
#define GPU_MINORS 248
#define MAX_GPUS 16
#define CAP_MIG_CONFIG 1
#define CAP_MIG_MONITOR 2
#define CAP_FIRST_INSTANCE 3
#define CAPS_OF_GPU (15 * 9)
#define CAP_FABRIC_IMEX (CAP_FIRST_INSTANCE + 32 * CAPS_OF_GPU)

static unsigned int gpus = 2;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "how many GPUs, 0 to 16; minors run against bus order");

static unsigned int mig;
module_param(mig, uint, 0444);
MODULE_PARM_DESC(mig, "how many MIG GPU instances the GPU with minor 0 has, 0 to 7, each with one compute instance");

static unsigned int caps_major;
module_param(caps_major, uint, 0444);
MODULE_PARM_DESC(caps_major, "major of nvidia-caps; 0: the kernel chooses");

static unsigned int imex_major;
module_param(imex_major, uint, 0444);
MODULE_PARM_DESC(imex_major, "major of nvidia-caps-imex-channels; 0: the kernel chooses");

static unsigned int imex_channels = 2048;
module_param(imex_channels, uint, 0444);
MODULE_PARM_DESC(imex_channels, "how many IMEX channels; 0: the name is not registered");

static bool frontend;
module_param(frontend, bool, 0444);
MODULE_PARM_DESC(frontend, "register nvidia-frontend for all of 195, as drivers before 545 did");

static bool kfd;
module_param(kfd, bool, 0444);
MODULE_PARM_DESC(kfd, "register AMD's kfd too");

static int dead_minor = -1;
module_param(dead_minor, int, 0644);
MODULE_PARM_DESC(dead_minor, "the GPU whose open fails with EIO; -1: none");

static char *version = "590.48.01";
module_param(version, charp, 0444);
MODULE_PARM_DESC(version, "the driver's version");

static LIST_HEAD(regions);
static DEFINE_MUTEX(regions_lock);
static struct proc_dir_entry *proc;

/* A region's counters: opens that succeeded, then as many that this driver refused. */
static int count_open(struct inode *inode, struct file *file)
{
	struct standin_region *region = container_of(inode->i_cdev, struct standin_region, cdev);
	unsigned int minor = iminor(inode);
	int error = region->may_open ? region->may_open(minor) : 0;

	atomic_inc(&region->opens[(error ? region->count : 0) + minor - region->first]);
	return error;
}

static const struct file_operations counted[] = { { .open = count_open } };

int standin_register(struct standin_region *region, struct module *owner)
{
	dev_t first = MKDEV(region->major, region->first);
	struct file_operations *fops;
	int error;

	region->opens = kvcalloc(2 * region->count, sizeof(*region->opens), GFP_KERNEL);
	fops = kmemdup(counted, sizeof(counted), GFP_KERNEL);
	error = -ENOMEM;
	if (!region->opens || !fops)
		goto free;
	/* An open node keeps the module that registered it. */
	fops->owner = owner;
	if (region->major)
		error = register_chrdev_region(first, region->count, region->name);
	else
		error = alloc_chrdev_region(&first, region->first, region->count, region->name);
	if (error)
		goto free;
	region->major = MAJOR(first);
	region->owner = owner;
	cdev_init(&region->cdev, fops);
	region->cdev.owner = owner;
	error = cdev_add(&region->cdev, first, region->count);
	if (error)
		goto unregister;
	mutex_lock(&regions_lock);
	list_add_tail(&region->list, &regions);
	mutex_unlock(&regions_lock);
	return 0;

unregister:
	unregister_chrdev_region(first, region->count);
free:
	kfree(fops);
	kvfree(region->opens);
	region->opens = NULL;
	return error;
}
EXPORT_SYMBOL(standin_register);

void standin_unregister(struct standin_region *region)
{
	const struct file_operations *fops = region->cdev.ops;

	if (!region->opens)
		return;
	mutex_lock(&regions_lock);
	list_del(&region->list);
	mutex_unlock(&regions_lock);
	cdev_del(&region->cdev);
	unregister_chrdev_region(MKDEV(region->major, region->first), region->count);
	kfree(fops);
	kvfree(region->opens);
	region->opens = NULL;
}
EXPORT_SYMBOL(standin_unregister);

bool standin_is_frontend(void)
{
	return frontend;
}
EXPORT_SYMBOL(standin_is_frontend);

static int gpu_may_open(unsigned int minor)
{
	if (minor == dead_minor)
		return -EIO;
	return minor < gpus ? 0 : -ENODEV;
}

static int frontend_may_open(unsigned int minor)
{
	return minor < GPU_MINORS ? gpu_may_open(minor) : 0;
}

static struct standin_region gpu_region = {
	.name = "nvidia", .major = NV_MAJOR, .count = GPU_MINORS, .may_open = gpu_may_open,
};
static struct standin_region ctl_region = { .name = "nvidiactl", .major = NV_MAJOR, .first = CTL_MINOR, .count = 1 };
static struct standin_region frontend_region = {
	.name = "nvidia-frontend", .major = NV_MAJOR, .count = 256, .may_open = frontend_may_open,
};
static struct standin_region caps_region = { .name = "nvidia-caps", .count = 8192 };
static struct standin_region imex_region = { .name = "nvidia-caps-imex-channels" };
static struct standin_region kfd_region = { .name = "kfd", .count = 1 };

static int opens_show(struct seq_file *file, void *unused)
{
	struct standin_region *region;
	unsigned int i;

	mutex_lock(&regions_lock);
	list_for_each_entry(region, &regions, list)
		for (i = 0; i < region->count; i++) {
			int opened = atomic_read(&region->opens[i]);
			int refused = atomic_read(&region->opens[region->count + i]);

			if (opened || refused)
				seq_printf(file, "%s %u %d %d\n", region->name, region->first + i, opened, refused);
		}
	mutex_unlock(&regions_lock);
	return 0;
}

static int opens_open(struct inode *inode, struct file *file)
{
	return single_open(file, opens_show, NULL);
}

static ssize_t opens_write(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	struct standin_region *region;
	unsigned int i;

	mutex_lock(&regions_lock);
	list_for_each_entry(region, &regions, list)
		for (i = 0; i < 2 * region->count; i++)
			atomic_set(&region->opens[i], 0);
	mutex_unlock(&regions_lock);
	return size;
}

static const struct proc_ops opens_ops = {
	.proc_open = opens_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = opens_write,
};

static int version_show(struct seq_file *file, void *unused)
{
	seq_printf(file,
		   "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (standin@not-a-driver)\n"
		   "GCC version:  gcc version 12.2.0\n",
		   version);
	return 0;
}

static int params_show(struct seq_file *file, void *unused)
{
	seq_printf(file,
		   "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\n"
		   "DeviceFileMode: 438\nImexChannelCount: %u\nCreateImexChannel0: 0\n",
		   imex_channels);
	return 0;
}

static int registry_show(struct seq_file *file, void *unused)
{
	seq_puts(file, "Binary: \"\"\n");
	return 0;
}

static unsigned int bus_of(unsigned int index)
{
	return 0x07 + 8 * index;
}

static int information_show(struct seq_file *file, void *unused)
{
	unsigned int index = (unsigned long)file->private;
	unsigned int minor = gpus - 1 - index;

	seq_printf(file,
		   "Model: \t\t Stand-in GPU (not a GPU)\nIRQ:   \t\t %u\nGPU UUID: \t GPU-00000000-0000-4000-8000-%012u\n"
		   "Video BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
		   "Bus Location: \t 0000:%02x:00.0\nDevice Minor: \t %u\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
		   180 + index, minor, bus_of(index), minor, version);
	return 0;
}

/* minor << 16 | mode */
static int capability_show(struct seq_file *file, void *unused)
{
	unsigned long packed = (unsigned long)file->private;

	seq_printf(file, "DeviceFileMinor: %lu\nDeviceFileMode: %lu\nDeviceFileModify: 1\n", packed >> 16, packed & 0xffff);
	return 0;
}

static void text(const char *name, struct proc_dir_entry *in, int (*show)(struct seq_file *, void *), unsigned long data)
{
	proc_create_single_data(name, 0444, in, show, (void *)data);
}

static void capability(const char *name, struct proc_dir_entry *in, unsigned int minor, unsigned int mode)
{
	text(name, in, capability_show, (unsigned long)minor << 16 | mode);
}

static struct proc_dir_entry *numbered(const char *format, unsigned int number, struct proc_dir_entry *in)
{
	char name[32];

	snprintf(name, sizeof(name), format, number);
	return proc_mkdir(name, in);
}

static void make_proc(void)
{
	struct proc_dir_entry *dir, *of_mig;
	unsigned int i;

	proc_create("standin_opens", 0644, proc, &opens_ops);
	text("version", proc, version_show, 0);
	text("params", proc, params_show, 0);
	text("registry", proc, registry_show, 0);

	dir = proc_mkdir("gpus", proc);
	for (i = 0; i < gpus; i++) {
		struct proc_dir_entry *gpu = numbered("0000:%02x:00.0", bus_of(i), dir);

		text("information", gpu, information_show, i);
		text("registry", gpu, registry_show, 0);
	}

	dir = proc_mkdir("capabilities", proc);
	capability("fabric-imex-mgmt", dir, CAP_FABRIC_IMEX, 0400);
	of_mig = proc_mkdir("mig", dir);
	capability("config", of_mig, CAP_MIG_CONFIG, 0400);
	capability("monitor", of_mig, CAP_MIG_MONITOR, 0444);
	if (!gpus || !mig)
		return;
	of_mig = proc_mkdir("mig", numbered("gpu%u", 0, dir));
	for (i = 0; i < mig; i++) {
		unsigned int instance = i + 7;
		unsigned int minor = CAP_FIRST_INSTANCE + instance * 9;
		struct proc_dir_entry *gi = numbered("gi%u", instance, of_mig);

		capability("access", gi, minor, 0444);
		capability("access", numbered("ci%u", 0, gi), minor + 1, 0444);
	}
}

static struct standin_region *const all[] = {
	&gpu_region, &ctl_region, &frontend_region, &caps_region, &imex_region, &kfd_region,
};

static bool wanted(const struct standin_region *region)
{
	if (region == &gpu_region || region == &ctl_region)
		return !frontend;
	if (region == &frontend_region)
		return frontend;
	if (region == &imex_region)
		return imex_channels != 0;
	return region != &kfd_region || kfd;
}

static void __exit standin_exit(void)
{
	size_t i;

	proc_remove(proc);
	for (i = 0; i < ARRAY_SIZE(all); i++)
		standin_unregister(all[i]);
}

static int __init standin_init(void)
{
	size_t i;

	if (gpus > MAX_GPUS || mig > 7)
		return -EINVAL;
	caps_region.major = caps_major;
	imex_region.major = imex_major;
	imex_region.count = imex_channels;
	for (i = 0; i < ARRAY_SIZE(all); i++) {
		int error = wanted(all[i]) ? standin_register(all[i], THIS_MODULE) : 0;

		if (error) {
			while (i--)
				standin_unregister(all[i]);
			return error;
		}
	}
	proc = proc_mkdir("driver/nvidia", NULL);
	if (proc)
		make_proc();
	return 0;
}

module_init(standin_init);
module_exit(standin_exit);
MODULE_DESCRIPTION(STANDIN_DESCRIPTION);
MODULE_LICENSE("Dual MIT/GPL");
