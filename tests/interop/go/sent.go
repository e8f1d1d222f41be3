package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	messages = 25
	queues   = 4
	patience = 90 * time.Second
)

func sent(names primitive.NamesrvAddr) interface{} {
	statuses := send(names)
	keys, times := push(names)
	return map[string]interface{}{
		"statuses": statuses, "received": keys, "times": times, "pulled": pull(names),
	}
}

// Ten in turn, five in one batch, five that are waited for at the end, five without an answer.
func send(names primitive.NamesrvAddr) map[string]int {
	p, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName("go-producers"))
	check(err)
	check(p.Start())
	defer p.Shutdown()
	statuses := map[string]int{}
	for i := 0; i < 10; i++ {
		result, err := p.SendSync(context.Background(), message("Sent", i))
		check(err)
		statuses[fmt.Sprint("sync ", result.Status)]++
	}
	batch := []*primitive.Message{}
	for i := 10; i < 15; i++ {
		batch = append(batch, message("Sent", i))
	}
	result, err := p.SendSync(context.Background(), batch...)
	check(err)
	statuses[fmt.Sprint("batch ", result.Status)]++
	var lock sync.Mutex
	var wait sync.WaitGroup
	for i := 15; i < 20; i++ {
		wait.Add(1)
		answered := func(_ context.Context, result *primitive.SendResult, err error) {
			check(err)
			lock.Lock()
			defer lock.Unlock()
			statuses[fmt.Sprint("async ", result.Status)]++
			wait.Done()
		}
		check(p.SendAsync(context.Background(), answered, message("Sent", i)))
	}
	wait.Wait()
	for i := 20; i < messages; i++ {
		check(p.SendOneWay(context.Background(), message("Sent", i)))
	}
	time.Sleep(time.Second) // a connection that closes loses what was not sent yet
	return statuses
}

// The keys that came, and how often a message came for the first time and again.
func push(names primitive.NamesrvAddr) ([]string, map[string]int) {
	var lock sync.Mutex
	keys := map[string]bool{}
	times := map[string]int{}
	handle := func(ctx context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, each := range all {
			times[fmt.Sprint("delivery ", each.ReconsumeTimes)]++
			if each.GetKeys() == "key00" && each.ReconsumeTimes == 0 {
				if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
					concurrent.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
			keys[each.GetKeys()+" "+each.GetProperty("number")] = true
		}
		return consumer.ConsumeSuccess, nil
	}
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithGroupName("go-readers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(c.Subscribe("Sent", consumer.MessageSelector{Type: consumer.TAG, Expression: "tag"}, handle))
	check(c.Start())
	waitFor(&lock, func() bool { return len(keys) == messages })
	check(c.Shutdown())
	lock.Lock()
	defer lock.Unlock()
	return sorted(keys), times
}

// What lies in the queues, read by offset.
func pull(names primitive.NamesrvAddr) []string {
	c, err := rocketmq.NewPullConsumer(consumer.WithNameServer(names), consumer.WithGroupName("go-pullers"))
	check(err)
	check(c.Subscribe("Sent", consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	check(c.Start())
	defer c.Shutdown()
	keys := map[string]bool{}
	for id := 0; id < queues; id++ {
		queue := &primitive.MessageQueue{Topic: "Sent", BrokerName: os.Args[2], QueueId: id}
		for offset := int64(0); ; {
			result, err := c.PullFrom(context.Background(), queue, offset, 32)
			check(err)
			if result.Status != primitive.PullFound {
				break
			}
			for _, each := range result.GetMessageExts() {
				keys[fmt.Sprint(each.GetKeys(), " ", string(each.Body))] = true
			}
			offset = result.NextBeginOffset
		}
	}
	return sorted(keys)
}

func sorted(keys map[string]bool) []string {
	found := []string{}
	for each := range keys {
		found = append(found, each)
	}
	sort.Strings(found)
	return found
}

// Until `done`, which is asked with `lock` taken, or the patience ends.
func waitFor(lock sync.Locker, done func() bool) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		lock.Lock()
		over := done()
		lock.Unlock()
		if over {
			return
		}
	}
}
