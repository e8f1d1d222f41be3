package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	perKey      = 8
	delayLevel  = 2 // 5 s
	delay       = 5 * time.Second
	notEarlier  = delay - 50*time.Millisecond
	halfOutcome = "outcome"
)

// The numbers of each sharding key as an ordered consumer got them. It fails one message once, and
// what follows in its queue waits for it.
func orderly(names primitive.NamesrvAddr) map[string]interface{} {
	keys := []string{"a", "b", "c"}
	p, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName("go-ordering"),
		producer.WithQueueSelector(producer.NewHashQueueSelector()))
	check(err)
	check(p.Start())
	defer p.Shutdown()
	for i := 0; i < perKey; i++ {
		for _, key := range keys {
			each := message("Ordered", i)
			each.WithShardingKey(key)
			_, err := p.SendSync(context.Background(), each)
			check(err)
		}
	}
	var lock sync.Mutex
	found := map[string][]string{}
	failed := false
	handle := func(_ context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, each := range all {
			if key := each.GetShardingKey(); key == "a" && each.GetProperty("number") == "3" && !failed {
				failed = true
				return consumer.SuspendCurrentQueueAMoment, nil
			} else {
				found[key] = append(found[key], each.GetProperty("number"))
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithGroupName("go-orderly"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(true))
	check(err)
	check(c.Subscribe("Ordered", consumer.MessageSelector{}, handle))
	check(c.Start())
	waitFor(&lock, func() bool {
		total := 0
		for _, each := range found {
			total += len(each)
		}
		return total == perKey*len(keys)
	})
	check(c.Shutdown())
	lock.Lock()
	defer lock.Unlock()
	return map[string]interface{}{"orderly": found}
}

// Whether three messages came when they were due.
func delayed(names primitive.NamesrvAddr) map[string]interface{} {
	p, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName("go-delaying"))
	check(err)
	check(p.Start())
	defer p.Shutdown()
	born := map[string]time.Time{}
	for i := 0; i < 3; i++ {
		each := message("Delayed", i)
		each.WithDelayTimeLevel(delayLevel)
		born[each.GetKeys()] = time.Now()
		_, err := p.SendSync(context.Background(), each)
		check(err)
	}
	found := map[string]bool{}
	receive(names, "Delayed", 3, func(each *primitive.MessageExt) {
		when := "early"
		if time.Since(born[each.GetKeys()]) >= notEarlier {
			when = "due"
		}
		found[each.GetKeys()+" "+when] = true
	})
	return map[string]interface{}{"delayed": sorted(found)}
}

type decider struct{}

func (decider) ExecuteLocalTransaction(half *primitive.Message) primitive.LocalTransactionState {
	switch half.GetProperty(halfOutcome) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (decider) CheckLocalTransaction(half *primitive.MessageExt) primitive.LocalTransactionState {
	if half.GetProperty(halfOutcome) == "commit when asked" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

// Which of four halves were delivered: two are decided at once, two when the producer is asked. All
// clients of one instance share a connection, which passes questions on to the producer that made it:
// so this one has an instance of its own.
func transactions(names primitive.NamesrvAddr) map[string]interface{} {
	p, err := rocketmq.NewTransactionProducer(decider{}, producer.WithNameServer(names),
		producer.WithGroupName("go-deciding"), producer.WithInstanceName("Halves"))
	check(err)
	check(p.Start())
	defer p.Shutdown()
	for number, outcome := range []string{
		"rollback when asked", "rollback", "commit", "commit when asked",
	} {
		half := message("Halves", number)
		half.WithProperty(halfOutcome, outcome)
		half.WithProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", "1")
		_, err := p.SendMessageInTransaction(context.Background(), half)
		check(err)
	}
	found := map[string]bool{}
	receive(names, "Halves", 2, func(each *primitive.MessageExt) {
		found[fmt.Sprint(each.GetKeys(), " ", each.GetProperty(halfOutcome))] = true
	})
	return map[string]interface{}{"transactions": sorted(found)}
}

// Have a push consumer take `count` messages of the topic.
func receive(names primitive.NamesrvAddr, topic string, count int, take func(*primitive.MessageExt)) {
	var lock sync.Mutex
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithInstance(topic),
		consumer.WithGroupName("go-"+topic), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	taken := 0
	handle := func(_ context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, each := range all {
			take(each)
			taken++
		}
		return consumer.ConsumeSuccess, nil
	}
	check(c.Subscribe(topic, consumer.MessageSelector{}, handle))
	check(c.Start())
	waitFor(&lock, func() bool { return taken >= count })
	check(c.Shutdown())
}
